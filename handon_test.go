package redlatch_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// scripts counts the scripts that each node has run.
func scripts(t *testing.T, nodes []*redistest.Server) []int {
	t.Helper()
	counts := make([]int, len(nodes))
	for i, s := range nodes {
		info, err := s.Info("commandstats")
		if err != nil {
			t.Fatal(err)
		}
		calls, _, _ := strings.Cut(strings.TrimPrefix(info["cmdstat_evalsha"], "calls="), ",")
		counts[i], _ = strconv.Atoi(calls)
	}
	return counts
}

// A release leaves the lock free and calls the first in line, who is sent for and then takes it
// by an attempt of its own.
func TestReleaseCallsTheFirst(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
				t.Parallel()
				nodes := sharedOf(t, binary, n)
				proxies := redistest.Proxies(t, nodes)
				c := config(redistest.URLs(nodes)...)
				lock := tryLock(t, open(t, c), t.Name())
				out := queueUp(t, nodes, []*redlatch.Client{open(t, through(c, proxyURLs(proxies)...))}, t.Name(), 0)[0]
				arbiter := awaitQueued(t, nodes, t.Name(), 1)
				calls, err := nodes[arbiter].Dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer calls.Close()
				if _, err := calls.Do("PSUBSCRIBE", "redlatch:call:*"); err != nil {
					t.Fatal(err)
				}
				for _, p := range proxies {
					p.HoldBack(redistest.Requests, true) // who waits asks for nothing
				}
				token := lock.Token()
				unlock(t, lock)
				for called := false; !called; { // the servers are shared
					push, err := calls.Receive()
					if err != nil {
						t.Fatal(err)
					}
					fields := push.([]any)
					called = strings.HasSuffix(fields[len(fields)-1].(string), t.Name())
				}
				if got := value(t, nodes[arbiter], t.Name()); got != "" {
					t.Errorf("the release gave the lock to %q", got)
				}
				for _, p := range proxies {
					p.HoldBack(redistest.Requests, false)
				}
				o := <-out
				if o.err != nil {
					t.Fatal(o.err)
				}
				if o.lock.Token() <= token {
					t.Errorf("token %d follows %d", o.lock.Token(), token)
				}
				unlock(t, o.lock)
			})
		}
	})
}

// A lock that goes from client to client costs the node that keeps the line two
// commands, and the others less than that: the next takes over what the last left.
func TestHandedOnInOneCommand(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := redistest.Nodes(t, n)
			clients := clientsOf(t, config(redistest.URLs(nodes)...), 6)
			// A busy machine renews meanwhile, or asks again what was answered late, but not always.
			for round := range 5 {
				commands, handOffs := handedOn(t, nodes, clients, fmt.Sprint(t.Name(), round))
				t.Logf("%d commands on %d other nodes for %d hand-offs", commands, n-1, handOffs)
				if commands < 2*(n-1)*handOffs {
					return
				}
			}
			t.Error("as many commands on the other nodes as if nothing had been taken over")
		})
	}
}

// handedOn has a lock go from client to client, and returns how many commands the nodes that do
// not keep the line were sent for how many hand-offs.
func handedOn(t *testing.T, nodes []*redistest.Server, clients []*redlatch.Client, name string) (commands, handOffs int) {
	t.Helper()
	lock := tryLock(t, clients[0], name)
	outs := queueUp(t, nodes, clients[1:], name, 0)
	arbiter := awaitQueued(t, nodes, name, len(outs))
	var before []int
	for i, out := range outs {
		token := lock.Token()
		unlock(t, lock)
		o := <-out
		if o.err != nil {
			t.Fatal(o.err)
		}
		if lock = o.lock; lock.Token() <= token {
			t.Errorf("token %d follows %d", lock.Token(), token)
		}
		if i == 0 {
			continue // the first did not know that others wait
		}
		await(t, "all nodes have the record", func() bool { // no step of it is under way any more
			id := value(t, nodes[arbiter], name)
			return id != "" && !slices.ContainsFunc(nodes, func(s *redistest.Server) bool { return value(t, s, name) != id })
		})
		if i == 1 {
			before = scripts(t, nodes)
		}
	}
	for i, count := range scripts(t, nodes) {
		if i != arbiter {
			commands += count - before[i]
		}
	}
	unlock(t, lock)
	for _, s := range nodes {
		awaitValue(t, s, name, "")
	}
	return commands, len(outs) - 2
}

// Who is called has died, and nothing has told the servers: what was left to it is
// gone soon, and the next has the lock.
func TestHandedOnToTheDead(t *testing.T) {
	t.Parallel()
	nodes := redistest.Nodes(t, 3)
	for _, s := range nodes {
		dead, err := s.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer dead.Close()
		if _, err := dead.Do("SUBSCRIBE", "redlatch:call:dead"); err != nil {
			t.Fatal(err)
		}
		for _, command := range [][]string{
			{"ZADD", lineKey(t.Name()), "1", "dead/1"},
			{"ZADD", strings.Replace(lineKey(t.Name()), ":line:", ":beat:", 1), strconv.FormatInt(time.Now().Add(time.Minute).UnixMilli(), 10), "dead/1"},
			{"SET", strings.Replace(lineKey(t.Name()), ":line:", ":next:", 1), "-"},
		} {
			if _, err := s.Do(command...); err != nil {
				t.Fatal(err)
			}
		}
	}
	client := open(t, config(redistest.URLs(nodes)...))
	lock, err := client.Lock(within(t, patience), t.Name(), redlatch.WithoutQueue())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range nodes {
		awaitValue(t, s, t.Name(), value(t, nodes[0], t.Name()))
	}
	unlock(t, lock)
	for _, s := range nodes {
		awaitValue(t, s, t.Name(), "")
	}
	next, err := open(t, config(redistest.URLs(nodes)...)).Lock(within(t, patience), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, next)
}

// The answer of the node that keeps the line is lost, and with it whether another was
// called: what that one has taken over meanwhile is not taken for lost.
func TestReleaseWhoseKeeperIsNotHeard(t *testing.T) {
	t.Parallel()
	nodes := shared(t, 3)
	releaseUnheard(t, nodes, open(t, config(redistest.URLs(nodes)...)), -1)
}

// The line is kept by the next node where those who wait do not reach the first, which has
// lost the record.
func TestReleaseWhoseNextKeeperIsNotHeard(t *testing.T) {
	t.Parallel()
	for away := range 3 {
		t.Run(fmt.Sprintf("away=%d", away), func(t *testing.T) {
			t.Parallel()
			nodes := shared(t, 3)
			proxies := redistest.Proxies(t, nodes)
			if err := proxies[away].Refuse(true); err != nil {
				t.Fatal(err)
			}
			releaseUnheard(t, nodes, open(t, config(proxyURLs(proxies)...)), away)
		})
	}
}

// releaseUnheard has the answer to a release lost of the node that keeps the line, where
// other waits. Node lacking, if any, has lost the record.
func releaseUnheard(t *testing.T, nodes []*redistest.Server, other *redlatch.Client, lacking int) {
	t.Helper()
	proxies := redistest.Proxies(t, nodes)
	client := open(t, config(proxyURLs(proxies)...))
	unlock(t, tryLock(t, client, t.Name()+"/before")) // the nodes know the script
	lock := tryLock(t, client, t.Name())
	for _, s := range nodes {
		await(t, "all nodes have it", func() bool { return value(t, s, t.Name()) != "" })
	}
	out := queueUp(t, nodes, []*redlatch.Client{other}, t.Name(), 0)[0]
	arbiter := awaitQueued(t, nodes, t.Name(), 1)
	if lacking >= 0 {
		do(t, nodes[lacking], "DEL", t.Name())
	}
	for i, p := range proxies {
		p.HoldBack(redistest.Requests, i != arbiter)
	}
	struck := tap(proxies[arbiter]).lose("release", redistest.CutAfter)
	unlocked := make(chan error, 1)
	go func() { unlocked <- lock.Unlock(t.Context()) }()
	<-struck
	next := <-out
	for _, p := range proxies {
		p.HoldBack(redistest.Requests, false)
	}
	if err := <-unlocked; errors.Is(err, redlatch.ErrLost) || !errors.Is(err, redlatch.ErrNoQuorum) {
		t.Errorf("unlock: %v", err)
	}
	if next.err != nil {
		t.Fatal(next.err)
	}
	unlock(t, next.lock)
}

// A holder whose record is not on the node that keeps the line does not take what others
// do meanwhile for the loss of its lock.
func TestReleaseWithoutTheKeeper(t *testing.T) {
	t.Parallel()
	nodes := shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	client, other := open(t, config(proxyURLs(proxies)...)), open(t, config(redistest.URLs(nodes)...))
	lock := tryLock(t, client, t.Name())
	for _, s := range nodes {
		await(t, "all nodes have it", func() bool { return value(t, s, t.Name()) != "" })
	}
	out := queueUp(t, nodes, []*redlatch.Client{other}, t.Name(), 0)[0]
	arbiter := awaitQueued(t, nodes, t.Name(), 1)
	do(t, nodes[arbiter], "DEL", t.Name())
	for i, p := range proxies {
		p.HoldBack(redistest.Requests, i != arbiter)
	}
	unlocked := make(chan error, 1)
	go func() { unlocked <- lock.Unlock(t.Context()) }()
	var next outcomeOf
	select {
	case next = <-out: // before the rest of the release
	case <-time.After(time.Second):
	}
	for _, p := range proxies {
		p.HoldBack(redistest.Requests, false)
	}
	if err := <-unlocked; err != nil {
		t.Errorf("unlock: %v", err)
	}
	if next.lock == nil {
		next = <-out
	}
	if next.err != nil {
		t.Fatal(next.err)
	}
	unlock(t, next.lock)
}
