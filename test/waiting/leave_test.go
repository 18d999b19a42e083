package waiting

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redisconn"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// undoing is a connection on which something happens before an attempt by a waiter is undone.
type undoing struct {
	*redisconn.Conn
	happen func()
	// granted is called when an attempt by a waiter was granted, left when a place was given up.
	granted, left func()
}

func (c undoing) EvalSHA(ctx context.Context, sha string, keys, args []string) (driver.Reply, error) {
	releases := []string{script.Releasing.SHA, script.ReleasingAll.SHA, script.ReleasingShared.SHA, script.ReleasingSlot.SHA}
	steps := []string{script.Acquire, script.AcquireAll, script.AcquireShared, script.Slot}
	after := func() {}
	switch {
	case slices.Contains(releases, sha) && len(args) > 4 && args[4] == "0":
		after = c.left
	case slices.Contains(releases, sha) && len(args) > 4:
		c.happen()
	case slices.Contains(steps, args[0]) && len(args) > 7 && args[7] != "" && args[7] != "*":
		after = c.granted
	}
	reply, err := c.Conn.EvalSHA(ctx, sha, keys, args)
	after()
	return reply, err
}

// openUndoing opens a client by such connections. They bring no messages, and nothing is left to chance.
func openUndoing(t *testing.T, c redlatch.Config, on undoing) *redlatch.Client {
	t.Helper()
	draw := func(time.Duration) time.Duration { return 0 }
	return locktest.OpenIn(t, c, hook.Surroundings{Draw: draw, Dial: func(name string) (driver.Conn, error) {
		at := slices.IndexFunc(c.Nodes, func(url string) bool { return strings.HasSuffix(url, "#"+name) })
		options, _, err := redisconn.Parse(c.Nodes[at])
		if err != nil {
			return nil, err
		}
		options.ConnectTimeout = locktest.Patience
		conn := on
		conn.Conn, err = redisconn.New(options)
		return conn, err
	}})
}

// A waiter's turn has come, and it leaves while its attempt is under way. The undoing of the attempt
// keeps the waiter's place, so the place is given up after it: nothing of the waiter is left.
func TestPlaceIsGivenUpAfterTheAttempt(t *testing.T) {
	t.Parallel()
	for kind, option := range map[string]redlatch.Option{
		"one name": redlatch.WithAlso(), "several": redlatch.WithAlso("{x}y"), "reader": redlatch.WithShared(), "permit": redlatch.WithPermits(1),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			nodes := redistest.Nodes(t, 1, redistest.Options{})
			c := locktest.Config(redistest.URLs(nodes)...)
			var held redlatch.Option = redlatch.WithAlso()
			if kind == "permit" {
				held = option
			}
			first := locktest.TryLock(t, locktest.Open(t, c), "x", held)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var undone atomic.Int32
			left := make(chan struct{})
			waiter := openUndoing(t, c, undoing{granted: cancel, left: sync.OnceFunc(func() { close(left) }), happen: func() {
				undone.Add(1)
				select {
				case <-left:
				case <-time.After(200 * time.Millisecond): // the place is given up after this
				}
			}})
			wait, waiting := locktest.WhenWaiting(nil)
			out := locktest.LockIn(ctx, waiter, "x", option, wait)
			<-waiting
			locktest.Await(t, "it is queued", func() bool { return len(keysOfQueues(t, nodes[0])) > 0 })
			locktest.Unlock(t, first)
			if o := <-out; o.Err == nil {
				t.Error("it has the lock")
			}
			if err := waiter.Close(); err != nil {
				t.Error(err)
			}
			if n := undone.Load(); n != 1 {
				t.Errorf("%d attempts were undone, want 1", n)
			}
			if left := keysOfQueues(t, nodes[0]); len(left) > 0 {
				t.Errorf("after the waiter's end there are still %q", left)
			}
		})
	}
}

// A waiter's attempt for a permit fails. It is undone only when the waiter has another permit, and its
// place is given up once more.
func TestPlaceIsGivenUpAfterAnEarlierAttempt(t *testing.T) {
	t.Parallel()
	nodes := redistest.Nodes(t, 3, redistest.Options{})
	held := make(chan struct{})
	undone := make(chan struct{}, 10)
	waiter := openUndoing(t, locktest.Config(redistest.URLs(nodes)...), undoing{granted: func() {}, left: func() {}, happen: func() {
		<-held
		undone <- struct{}{}
	}})
	slots := []string{"redlatch:{x}:permit:0:x", "redlatch:{x}:permit:1:x"}
	for _, s := range nodes {
		locktest.Do(t, s, "MSET", slots[0], "another's", slots[1], "another's")
	}
	out := locktest.LockIn(locktest.Within(t, locktest.Patience), waiter, "x", redlatch.WithPermits(2))
	arbiter := 0
	locktest.Await(t, "it is queued", func() bool {
		arbiter = slices.IndexFunc(nodes, func(s *redistest.Server) bool { return len(keysOfQueues(t, s)) > 0 })
		return arbiter >= 0
	})
	// The first slot stays another's on all nodes but the one that chooses.
	for i, s := range nodes {
		if i != arbiter {
			locktest.Do(t, s, "DEL", slots[1])
		}
	}
	locktest.Do(t, nodes[arbiter], "DEL", slots[0], slots[1])
	o := <-out
	close(held)
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	select {
	case <-undone:
	case <-locktest.Within(t, locktest.Patience).Done():
		t.Error("no attempt was undone")
	}
	locktest.Unlock(t, o.Lock)
	if err := waiter.Close(); err != nil {
		t.Error(err)
	}
	for i, s := range nodes {
		if left := keysOfQueues(t, s); len(left) > 0 {
			t.Errorf("after the waiter's end there are still %q on node %d", left, i)
		}
	}
}

// keysOfQueues returns the keys of wait queues on a server.
func keysOfQueues(t *testing.T, s *redistest.Server) []any {
	t.Helper()
	return slices.DeleteFunc(locktest.Do(t, s, "KEYS", "redlatch:*").([]any), func(key any) bool {
		k := key.(string)
		return !strings.Contains(k, ":queue:") && !strings.Contains(k, ":heartbeats:") && !strings.Contains(k, ":next:")
	})
}

// A waiter wins the lock while the arbiter has yet to answer, and then its connection to the arbiter breaks before the
// step is executed. It gives its place up at once: the next would find it there until it lapses.
func TestPlaceIsGivenUpWhereTheArbiterIsNotHeard(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	c := locktest.Config(redistest.URLs(nodes)...)
	first := locktest.TryLock(t, locktest.Open(t, c), t.Name())
	waiter := locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(proxies)...))
	out := queueUp(t, nodes, []*redlatch.Client{waiter}, t.Name(), 0)[0]
	arbiter := awaitQueued(t, nodes, t.Name(), 1)
	won, left := make(chan struct{}), make(chan struct{})
	leaves := sync.OnceFunc(func() { close(left) })
	proxies[arbiter].OnCommand(func(c redistest.Command) redistest.Action {
		switch step, _ := locktest.StepOf(c); {
		case step == script.Acquire:
			<-won
			return redistest.CutBefore
		case step == "release" && c.Args[len(c.Args)-1] == "0":
			leaves()
		}
		return redistest.Pass
	})
	locktest.Unlock(t, first)
	o := <-out
	close(won)
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	select {
	case <-left:
	case <-time.After(locktest.Patience):
		t.Error("it keeps its place")
	}
	locktest.Unlock(t, o.Lock)
}
