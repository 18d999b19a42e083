package waiting

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A release leaves the lock free and wakes up the first in the queue, who then takes it
// by an attempt of its own.
func TestReleaseWakesUpTheFirst(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
				t.Parallel()
				nodes := locktest.SharedOf(t, binary, n)
				proxies := redistest.Proxies(t, nodes)
				c := locktest.Config(redistest.URLs(nodes)...)
				lock := locktest.TryLock(t, locktest.Open(t, c), t.Name())
				out := queueUp(t, nodes, []*redlatch.Client{locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(proxies)...))}, t.Name(), 0)[0]
				arbiter := awaitQueued(t, nodes, t.Name(), 1)
				calls, err := nodes[arbiter].Dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer calls.Close()
				if _, err := calls.Do("PSUBSCRIBE", "redlatch:wake:*"); err != nil {
					t.Fatal(err)
				}
				for _, p := range proxies {
					p.HoldBack(redistest.Requests, true) // who waits asks for nothing
				}
				token := lock.Token()
				locktest.Unlock(t, lock)
				for called := false; !called; { // the servers are shared
					push, err := calls.Receive()
					if err != nil {
						t.Fatal(err)
					}
					fields := push.([]any)
					called = strings.HasSuffix(fields[len(fields)-1].(string), t.Name())
				}
				if got := locktest.Value(t, nodes[arbiter], t.Name()); got != "" {
					t.Errorf("the release gave the lock to %q", got)
				}
				for _, p := range proxies {
					p.HoldBack(redistest.Requests, false)
				}
				o := <-out
				if o.Err != nil {
					t.Fatal(o.Err)
				}
				if o.Lock.Token() <= token {
					t.Errorf("token %d follows %d", o.Lock.Token(), token)
				}
				locktest.Unlock(t, o.Lock)
			})
		}
	})
}

// A lock that goes from client to client costs the arbiter two
// commands, and the others less than that: the next takes over what the last left.
func TestTransferInOneCommand(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := redistest.Nodes(t, n)
			clients := clientsOf(t, locktest.Config(redistest.URLs(nodes)...), 6)
			// A busy machine renews meanwhile, or asks again what was answered late, but not always.
			for round := range 30 {
				commands, handOffs := transferred(t, nodes, clients, fmt.Sprint(t.Name(), round))
				t.Logf("%d commands on %d other nodes for %d hand-offs", commands, n-1, handOffs)
				if commands < 2*(n-1)*handOffs {
					return
				}
			}
			t.Error("as many commands on the other nodes as if nothing had been taken over")
		})
	}
}

// transferred has a lock go from client to client, and returns how many commands the other
// nodes than the arbiter were sent for how many hand-offs.
func transferred(t *testing.T, nodes []*redistest.Server, clients []*redlatch.Client, name string) (commands, handOffs int) {
	t.Helper()
	lock := locktest.TryLock(t, clients[0], name)
	outs := queueUp(t, nodes, clients[1:], name, 0)
	arbiter := awaitQueued(t, nodes, name, len(outs))
	next := make(chan locktest.Outcome, len(outs))
	for _, out := range outs { // on a busy machine one may miss its turn, which another then has
		go func() { next <- <-out }()
	}
	var before []int
	for i := range outs {
		token := lock.Token()
		locktest.Unlock(t, lock)
		o := <-next
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		if lock = o.Lock; lock.Token() <= token {
			t.Errorf("token %d follows %d", lock.Token(), token)
		}
		if i == 0 {
			continue // the first did not know that others wait
		}
		locktest.Await(t, "all nodes have the key", func() bool { // no step of it is under way any more
			id := locktest.Value(t, nodes[arbiter], name)
			return id != "" && !slices.ContainsFunc(nodes, func(s *redistest.Server) bool { return locktest.Value(t, s, name) != id })
		})
		if i == 1 {
			before = locktest.ScriptCalls(t, nodes)
		}
	}
	for i, count := range locktest.ScriptCalls(t, nodes) {
		if i != arbiter {
			commands += count - before[i]
		}
	}
	locktest.Unlock(t, lock)
	for _, s := range nodes {
		locktest.AwaitValue(t, s, name, "")
	}
	return commands, len(outs) - 2
}

// Who is woken up has died, and nothing has told the servers: what was left to it is
// gone soon, and the next has the lock.
func TestTransferToTheDead(t *testing.T) {
	t.Parallel()
	nodes := redistest.Nodes(t, 3)
	for _, s := range nodes {
		dead, err := s.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer dead.Close()
		if _, err := dead.Do("SUBSCRIBE", "redlatch:wake:dead"); err != nil {
			t.Fatal(err)
		}
		for _, command := range [][]string{
			{"ZADD", queueKey(t.Name()), "1", "dead/1"},
			{"ZADD", strings.Replace(queueKey(t.Name()), ":queue:", ":heartbeats:", 1), strconv.FormatInt(time.Now().Add(time.Minute).UnixMilli(), 10), "dead/1"},
			{"SET", strings.Replace(queueKey(t.Name()), ":queue:", ":next:", 1), "-"},
		} {
			if _, err := s.Do(command...); err != nil {
				t.Fatal(err)
			}
		}
	}
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	lock, err := client.Lock(locktest.Within(t, locktest.Patience), t.Name(), redlatch.WithoutQueue())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range nodes {
		locktest.AwaitValue(t, s, t.Name(), hook.LeaseOf(lock).HolderID())
	}
	locktest.Unlock(t, lock)
	for _, s := range nodes {
		locktest.AwaitValue(t, s, t.Name(), "")
	}
	next, err := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...)).Lock(locktest.Within(t, locktest.Patience), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	locktest.Unlock(t, next)
}

// The answer of the arbiter is lost, and with it whether another was
// woken up: what that one has taken over meanwhile is not taken for lost.
func TestReleaseWhoseArbiterIsNotHeard(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	releaseUnheard(t, nodes, locktest.Open(t, locktest.Config(redistest.URLs(nodes)...)), -1)
}

// The next node is the arbiter where those who wait do not reach the first, which has
// lost the key.
func TestReleaseWhoseNextArbiterIsNotHeard(t *testing.T) {
	t.Parallel()
	for away := range 3 {
		t.Run(fmt.Sprintf("away=%d", away), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, 3)
			proxies := redistest.Proxies(t, nodes)
			if err := proxies[away].Refuse(true); err != nil {
				t.Fatal(err)
			}
			releaseUnheard(t, nodes, locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...)), away)
		})
	}
}

// releaseUnheard has the arbiter's answer to a release lost, where
// other waits. Node lacking, if any, has lost the key.
func releaseUnheard(t *testing.T, nodes []*redistest.Server, other *redlatch.Client, lacking int) {
	t.Helper()
	proxies := redistest.Proxies(t, nodes)
	client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
	locktest.Unlock(t, locktest.TryLock(t, client, t.Name()+"/before")) // the nodes know the script
	lock := locktest.TryLock(t, client, t.Name())
	locktest.AwaitOn(t, lock, nodes...)
	out := queueUp(t, nodes, []*redlatch.Client{other}, t.Name(), 0)[0]
	arbiter := awaitQueued(t, nodes, t.Name(), 1)
	if lacking >= 0 {
		locktest.Do(t, nodes[lacking], "DEL", t.Name())
	}
	for i, p := range proxies {
		p.HoldBack(redistest.Requests, i != arbiter)
	}
	struck := locktest.Tap(proxies[arbiter]).Lose("release", redistest.CutAfter)
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
	if next.Err != nil {
		t.Fatal(next.Err)
	}
	locktest.Unlock(t, next.Lock)
}

// A holder whose key is not on the arbiter does not take what others
// do meanwhile for the loss of its lock.
func TestReleaseWithoutTheArbiter(t *testing.T) {
	t.Parallel()
	const tries = 20 // a busy machine may send the rest of the release too late, but not each time
	err := releaseWithoutTheArbiter(t, t.Name())
	for try := 1; try < tries && locktest.Late(err); try++ {
		err = releaseWithoutTheArbiter(t, fmt.Sprintf("%s/%d", t.Name(), try))
	}
	if err != nil {
		t.Errorf("unlock: %v", err)
	}
}

func releaseWithoutTheArbiter(t *testing.T, name string) error {
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	client, other := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...)), locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	lock := locktest.TryLock(t, client, name)
	locktest.AwaitOn(t, lock, nodes...)
	out := queueUp(t, nodes, []*redlatch.Client{other}, name, 0)[0]
	arbiter := awaitQueued(t, nodes, name, 1)
	locktest.Do(t, nodes[arbiter], "DEL", name)
	for i, p := range proxies {
		p.HoldBack(redistest.Requests, i != arbiter)
	}
	unlocked := make(chan error, 1)
	go func() { unlocked <- lock.Unlock(t.Context()) }()
	var next locktest.Outcome
	select {
	case next = <-out: // before the rest of the release
	case <-time.After(time.Second / 2): // NodeTimeout is twice as long
	}
	for _, p := range proxies {
		p.HoldBack(redistest.Requests, false)
	}
	err := <-unlocked
	if next.Lock == nil {
		next = <-out
	}
	if next.Err != nil {
		t.Fatal(next.Err)
	}
	locktest.Unlock(t, next.Lock)
	return err
}
