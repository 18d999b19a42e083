package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
)

// The server acquires and its reply is lost, on so many nodes that there is no
// quorum: the try fails, its keys go, and the next try, under its own id,
// holds, long before any TTL is over. Nothing is sent twice.
func TestReplyToAcquireIsLost(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		for name, how := range locktest.Losses() {
			t.Run(fmt.Sprintf("N=%d %s", n, name), func(t *testing.T) {
				t.Parallel()
				nodes := locktest.Shared(t, n)
				proxies := redistest.Proxies(t, nodes)
				client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
				wires := locktest.Taps(proxies)
				for _, w := range wires[:n/2+1] {
					w.Lose("acquire", how)
				}
				lock, err := client.TryLock(t.Context(), t.Name())
				if lock != nil || !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrHeld) {
					t.Fatalf("held %t, %v", lock != nil, err)
				}
				for _, a := range locktest.FailureOf(t, err).Nodes[:n/2+1] {
					if a.Verdict != redlatch.VoteUnknown || a.Err == nil {
						t.Errorf("a lost reply is %v", a)
					}
				}
				// A connection that lost a reply stays silent.
				for _, p := range proxies {
					p.DropReplies(true)
					p.DropReplies(false)
				}
				for _, s := range nodes {
					locktest.AwaitValue(t, s, t.Name(), "")
				}
				// Waiting takes care of it by itself.
				for _, w := range wires[:n/2+1] {
					w.Lose("acquire", redistest.CutAfter)
				}
				lock, err = client.Lock(locktest.Within(t, locktest.Patience), t.Name())
				if err != nil {
					t.Fatal(err)
				}
				locktest.Unlock(t, lock)
				for _, s := range nodes {
					locktest.AwaitValue(t, s, t.Name(), "")
				}
				for _, w := range wires {
					w.CheckOnce(t, "acquire", "confirm", "extend", "repair")
				}
			})
		}
	}
}

// The reply is lost on a minority: nobody notices.
func TestReplyOfAMinorityIsLost(t *testing.T) {
	t.Parallel()
	for name, how := range locktest.Losses() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, 3)
			proxies := redistest.Proxies(t, nodes)
			client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
			w := locktest.Tap(proxies[1])
			struck := w.Lose("acquire", how)
			lock := locktest.TryLock(t, client, t.Name())
			<-struck
			locktest.Unlock(t, lock)
			proxies[1].Cut()
			for _, s := range nodes {
				locktest.AwaitValue(t, s, t.Name(), "")
			}
			w.CheckOnce(t, "acquire", "confirm", "extend", "repair")
		})
	}
}

// The server deletes and its reply is lost. The caller is not told that it is
// still held, nor that it was not its own; the deletion is made sure of; and
// when another has the lock by then, nothing happens to it.
func TestReplyToReleaseIsLost(t *testing.T) {
	t.Parallel()
	for name, how := range locktest.Losses() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := locktest.Shared(t, 1)[0]
			proxy := redistest.NewProxy(t, server.Addr())
			c := locktest.Config(proxy.URL())
			client, other := locktest.Open(t, c), locktest.Open(t, locktest.Through(c, server.URL()))
			w := locktest.Tap(proxy)
			locktest.Unlock(t, locktest.TryLock(t, client, t.Name())) // the server has the script from then on
			lock := locktest.TryLock(t, client, t.Name())
			w.Lose("release", how)
			err := lock.Unlock(t.Context())
			if !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrLost) {
				t.Errorf("unlock: %v", err)
			}
			if !errors.Is(lock.Err(), redlatch.ErrReleased) {
				t.Errorf("the lock is %v", lock.Err())
			}
			next := locktest.TryLock(t, other, t.Name()) // it was deleted
			mine := locktest.Value(t, server, t.Name())
			proxy.Cut()
			// It is sent once more, under the first one's id, and finds nothing.
			locktest.Await(t, "the release is made sure of", func() bool { return w.Count("release") >= 2 })
			if got := locktest.Value(t, server, t.Name()); got != mine || next.Err() != nil {
				t.Errorf("the next holder's key is %q, want %q; its lock is %v", got, mine, next.Err())
			}
			locktest.Unlock(t, next)
		})
	}
}

// Two of three nodes have lost the lock, and the third does not answer the release: it may have woken up
// a client that took the lock over, so nobody can say that the lock was lost. If it answers, it was.
func TestReleaseOfALockLostInDoubt(t *testing.T) {
	t.Parallel()
	for name, how := range locktest.Losses() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, 3)
			proxies := redistest.Proxies(t, nodes)
			client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
			lost := func() *redlatch.Lock {
				lock := locktest.TryLock(t, client, t.Name(), redlatch.WithoutRenewal())
				locktest.AwaitOn(t, lock, nodes[1:]...)
				for _, s := range nodes[1:] { // two of three hold it, and the third may get it late
					locktest.Do(t, s, "DEL", t.Name())
				}
				return lock
			}
			err := lost().Unlock(t.Context())
			for try := 1; try < 20 && unanswered(err); try++ { // on a busy machine
				err = lost().Unlock(t.Context())
			}
			if !errors.Is(err, redlatch.ErrLost) || errors.Is(err, redlatch.ErrNoQuorum) {
				t.Errorf("unlock, with all answers: %v", err)
			}
			lock := lost()
			locktest.Tap(proxies[0]).Lose("release", how)
			if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrLost) {
				t.Errorf("unlock, without that of one node: %v", err)
			}
		})
	}
}

// A caller of the same client and another client wait for a lock that two of three nodes have lost: its release says so.
func TestReleaseOfALostLockForWhichOthersWait(t *testing.T) {
	t.Parallel()
	nodes := redistest.Nodes(t, 3)
	config := locktest.Config(redistest.URLs(nodes)...)
	client, other := locktest.Open(t, config), locktest.Open(t, config)
	// On a busy machine a node may not answer in time, but not each time.
	var err error
	for try := 0; try == 0 || try < 20 && unanswered(err); try++ {
		err = releaseOfALostLock(t, nodes, client, other, fmt.Sprintf("%s/%d", t.Name(), try))
	}
	if !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("unlock: %v", err)
	}
}

// unanswered reports whether a node has not answered in time.
func unanswered(err error) bool {
	failure, ok := errors.AsType[*redlatch.QuorumError](err)
	return ok && slices.ContainsFunc(failure.Nodes, func(a redlatch.NodeAnswer) bool {
		return a.Verdict == redlatch.VoteUnknown || a.Verdict == redlatch.VoteNotSent
	})
}

// releaseOfALostLock releases a lock of client that two of three nodes have lost, and for which a caller of
// client and one of other wait.
func releaseOfALostLock(t *testing.T, nodes []*redistest.Server, client, other *redlatch.Client, name string) error {
	lock := locktest.TryLock(t, client, name, redlatch.WithoutRenewal())
	locktest.AwaitOn(t, lock, nodes...)
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	defer callers.Wait()
	defer cancel()
	wait := func(c *redlatch.Client, options ...redlatch.Option) {
		report, waits := locktest.WhenWaiting(nil)
		callers.Go(func() {
			if lock, err := c.Lock(ctx, name, append(options, report)...); err == nil {
				_ = lock.Unlock(t.Context())
			}
		})
		<-waits
	}
	wait(other)
	queued := func(s *redistest.Server) bool { return locktest.Value(t, s, node.NextKey(name)) != "" }
	locktest.Await(t, "a node has it in its queue", func() bool { return slices.ContainsFunc(nodes, queued) })
	wait(client, redlatch.WithTTL(locktest.TTL/2)) // which does not go on to hold by the same attempt
	for _, s := range nodes {
		if !queued(s) {
			locktest.Do(t, s, "DEL", name)
		}
	}
	return lock.Unlock(t.Context())
}

// Two of three nodes are down: the lock that is released was not lost, and nobody can say that it was deleted.
func TestReleaseWithoutAQuorum(t *testing.T) {
	t.Parallel()
	nodes := redistest.Nodes(t, 3)
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	lock := locktest.TryLock(t, client, t.Name(), redlatch.WithoutRenewal())
	locktest.AwaitOn(t, lock, nodes...)
	for _, s := range nodes[1:] {
		s.Kill()
	}
	locktest.Await(t, "the client knows that they are down", func() bool {
		_, err := client.TryLock(t.Context(), t.Name()+"/other")
		q, is := errors.AsType[*redlatch.QuorumError](err)
		return is && q.Nodes[1].Verdict == redlatch.VoteNotSent && q.Nodes[2].Verdict == redlatch.VoteNotSent
	})
	if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrLost) {
		t.Errorf("unlock: %v", err)
	}
	locktest.AwaitValue(t, nodes[0], t.Name(), "")
}

// The server extends and its reply is lost: the extension is not relied on, and
// the lock is held as long as it was.
func TestReplyToExtendIsLost(t *testing.T) {
	t.Parallel()
	for name, how := range locktest.Losses() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := locktest.Shared(t, 1)[0]
			proxy := redistest.NewProxy(t, server.Addr())
			client := locktest.Open(t, locktest.Config(proxy.URL()))
			w := locktest.Tap(proxy)
			lock := locktest.TryLock(t, client, t.Name(), redlatch.WithTTL(locktest.TTL/2), redlatch.WithoutRenewal())
			until := lock.Until()
			w.Lose("extend", how)
			err := lock.Extend(t.Context(), locktest.TTL)
			if !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrLost) || locktest.FailureOf(t, err).Op != "extend" {
				t.Errorf("extend: %v", err)
			}
			if !lock.Until().Equal(until) || lock.Err() != nil {
				t.Errorf("valid until %v, was %v; %v", lock.Until(), until, lock.Err())
			}
			if left := locktest.Remaining(t, server, t.Name()); left <= locktest.TTL/2 {
				t.Fatalf("the server did not extend: %v left", left)
			}
			proxy.Cut()
			locktest.Await(t, "extended over a new connection", func() bool { return lock.Extend(t.Context(), locktest.TTL) == nil })
			if !lock.Until().After(until) {
				t.Errorf("valid until %v, was %v", lock.Until(), until)
			}
			locktest.Unlock(t, lock)
			locktest.AwaitValue(t, server, t.Name(), "")
		})
	}
}

// A connection breaks while nobody uses it, as servers and middle boxes do with
// idle ones. The next step counts all the same: nothing of it was lost.
func TestIdleConnectionsBreak(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, n)
			proxies := redistest.Proxies(t, nodes)
			client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
			// The client reads the end of its connections in its own time, and
			// what it sends before that is lost: so it gets several breaks, and
			// ever more time.
			breaks := 0
			survives := func(what string, step func() error) {
				t.Helper()
				var err error
				for pause := 10 * time.Millisecond; pause < 2*time.Second; pause *= 2 {
					breaks++
					locktest.Await(t, "all is well before the break", func() bool {
						other, err := client.TryLock(t.Context(), t.Name()+"/other")
						return err == nil && other.Unlock(t.Context()) == nil
					})
					for _, p := range proxies {
						before := p.Stats().Accepted
						p.Hangup()
						if err := p.Await(locktest.Within(t, locktest.Patience), func(s redistest.Stats) bool { return s.Accepted-s.Open >= before }); err != nil {
							t.Fatal(err)
						}
					}
					<-time.After(pause)
					if err = step(); err == nil {
						return
					}
				}
				t.Fatalf("%s: %v", what, err)
			}
			locktest.Unlock(t, locktest.TryLock(t, client, t.Name()))
			var lock *redlatch.Lock
			survives("lock", func() (err error) {
				lock, err = client.TryLock(t.Context(), t.Name())
				return err
			})
			survives("extend", func() error { return lock.Extend(t.Context(), locktest.TTL) })
			survives("unlock", func() error {
				if lock.Err() != nil {
					lock = locktest.TryLock(t, client, t.Name())
				}
				return lock.Unlock(t.Context())
			})
			t.Logf("%d breaks", breaks)
		})
	}
}
