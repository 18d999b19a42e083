package faults

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// severalNames are the names of a lock of several.
func severalNames(t *testing.T) []string {
	return []string{t.Name() + "/a", t.Name() + "/b", t.Name() + "/c"}
}

func awaitNone(t *testing.T, nodes []*redistest.Server, names []string) {
	t.Helper()
	for _, s := range nodes {
		for _, name := range names {
			locktest.AwaitValue(t, s, name, "")
		}
	}
}

// The servers acquire several names and their replies are lost: the try fails, all of its keys go, and
// the next holds. So it is with the reply to the release.
func TestRepliesOfSeveralAreLost(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		for name, how := range locktest.Losses() {
			t.Run(fmt.Sprintf("N=%d %s", n, name), func(t *testing.T) {
				t.Parallel()
				nodes, names := locktest.Shared(t, n), severalNames(t)
				c := locktest.Config(redistest.URLs(nodes)...)
				// lossy is a client to which a majority's reply to the next step is lost, once.
				lossy := func(step string) (client *redlatch.Client, lose, over func()) {
					proxies := redistest.Proxies(t, nodes)
					client, wires := locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(proxies)...)), locktest.Taps(proxies)
					lose = func() {
						for _, w := range wires[:n/2+1] {
							w.Lose(step, how)
						}
					}
					return client, lose, func() {
						for _, p := range proxies { // a connection that lost a reply stays silent
							p.DropReplies(true)
							p.DropReplies(false)
						}
						awaitNone(t, nodes, names)
						for _, w := range wires {
							w.CheckOnce(t, "acquire-all", "confirm-all", "extend-all", "repair-all")
						}
					}
				}
				client, lose, over := lossy("acquire-all")
				lose()
				lock, err := client.TryLock(t.Context(), names[0], redlatch.WithAlso(names...))
				if lock != nil || !errors.Is(err, redlatch.ErrNoQuorum) {
					t.Fatalf("held %t, %v", lock != nil, err)
				}
				over()
				locktest.Unlock(t, locktest.TryLock(t, client, names[0], redlatch.WithAlso(names...)))
				// Another client: that one may still make sure of its release.
				client, lose, over = lossy("release-all")
				lock = locktest.TryLock(t, client, names[0], redlatch.WithAlso(names...))
				lose()
				if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrLost) {
					t.Errorf("unlock: %v", err)
				}
				over()
			})
		}
	}
}

// With one of three nodes down several names are locked, extended and released; when it is back
// without what it had, an extension gives it all names.
func TestSeveralWithANodeDown(t *testing.T) {
	t.Parallel()
	nodes := redistest.Nodes(t, 3)
	names := severalNames(t)
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	lock := locktest.TryLock(t, client, names[0], redlatch.WithAlso(names...), redlatch.WithoutRenewal())
	locktest.AwaitOn(t, lock, nodes...)
	for _, s := range nodes { // each may be of the quorum that is left
		for _, name := range names {
			locktest.Await(t, "all nodes have it", func() bool { return locktest.Value(t, s, name) != "" })
		}
	}
	nodes[1].Kill()
	locktest.Await(t, "extended by two", func() bool { return lock.Extend(t.Context(), locktest.TTL) == nil })
	if err := nodes[1].RestartEmpty(t.Context()); err != nil {
		t.Fatal(err)
	}
	locktest.Await(t, "given back", func() bool {
		if err := lock.Extend(t.Context(), locktest.TTL); err != nil && !locktest.Late(err) {
			t.Fatal(err)
		}
		for _, name := range names {
			if locktest.Value(t, nodes[1], name) == "" {
				return false
			}
		}
		return true
	})
	nodes[2].Kill()
	other := locktest.Open(t, locktest.Through(locktest.Config(), redistest.URLs(nodes)...))
	for _, name := range names {
		if _, err := locktest.TryInTime(t, other, name); !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("%s, with another node down: %v", name, err)
		}
	}
	locktest.Unlock(t, lock)
	awaitNone(t, nodes[:2], names)
	next := locktest.TryLock(t, other, names[1], redlatch.WithAlso(names...))
	if next.Token() <= lock.Token() {
		t.Errorf("token %d follows %d", next.Token(), lock.Token())
	}
	locktest.Unlock(t, next)
}

// What a process that is killed has held of several names is free after its TTL, by which another waits.
func TestSeveralOfACrashedHolder(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, n)
			proxies := redistest.Proxies(t, nodes)
			c := locktest.Config(locktest.ProxyURLs(proxies)...)
			holder, other := locktest.Open(t, c), locktest.Open(t, locktest.Through(c, redistest.URLs(nodes)...))
			names := severalNames(t)
			lock := locktest.TryLock(t, holder, names[0], redlatch.WithAlso(names...), redlatch.WithTTL(time.Second))
			until := lock.Until()
			for _, p := range proxies { // nothing of the holder arrives any more
				p.BlackHole(redistest.Requests, true)
			}
			next, err := other.LockAll(locktest.Within(t, locktest.Patience), []string{names[2], names[1]})
			if err != nil {
				t.Fatal(err)
			}
			if now := time.Now(); now.Before(until) {
				t.Errorf("had by another %v before the end of the validity", until.Sub(now))
			}
			if next.Token() <= lock.Token() || lock.Err() == nil {
				t.Errorf("token %d follows %d, which is %v", next.Token(), lock.Token(), lock.Err())
			}
			locktest.Unlock(t, next)
		})
	}
}

// A client of another library takes and releases one of the names with plain commands: it excludes a
// lock of several, which is told when it lets go, and is excluded by it.
func TestSeveralBesidePlainClients(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		nodes := locktest.SharedOf(t, binary, 3)
		client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
		names := severalNames(t)
		plain := func(name string) (granted int) {
			for _, s := range nodes {
				if locktest.Do(t, s, "SET", name, "plain", "NX", "PX", "60000") != nil {
					granted++
				}
			}
			return granted
		}
		if got := plain(names[1]); got != 3 {
			t.Fatalf("the plain client has %d nodes", got)
		}
		report, waits := locktest.WhenWaiting(nil)
		out := locktest.LockIn(locktest.Within(t, locktest.Patience), client, names[0], redlatch.WithAlso(names...), report)
		<-waits
		release := func(name string) {
			for _, s := range nodes {
				locktest.Do(t, s, "EVAL", locktest.CompareAndDelete, "1", name, "plain")
			}
		}
		release(names[1])
		o := <-out
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		for _, name := range names {
			if got := plain(name); got > 1 { // one may have been let go of after the lock was acquired
				t.Errorf("%s: the plain client has %d nodes beside a holder", name, got)
			}
			release(name)
		}
		locktest.Unlock(t, o.Lock)
		awaitNone(t, nodes, names)
	})
}

// A call for several names takes them one by one, and the replies to the attempt that takes the places
// of these are lost: what it has left goes, and in the end the call holds.
func TestReplacingIsLost(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		for name, how := range locktest.Losses() {
			t.Run(fmt.Sprintf("N=%d %s", n, name), func(t *testing.T) {
				t.Parallel()
				nodes, names := locktest.Shared(t, n), severalNames(t)
				c := locktest.Config(redistest.URLs(nodes)...)
				proxies := redistest.Proxies(t, nodes)
				set, wires := locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(proxies)...)), locktest.Taps(proxies)
				last, out := takenSingly(t, nodes, set, locktest.Open(t, c), names)
				var struck []<-chan struct{}
				for _, w := range wires[:n/2+1] {
					struck = append(struck, w.Lose("acquire-all", how))
				}
				locktest.Unlock(t, last)
				for _, done := range struck {
					<-done
				}
				for _, p := range proxies { // a connection that lost a reply stays silent
					p.DropReplies(true)
					p.DropReplies(false)
				}
				o := <-out
				if o.Err != nil {
					t.Fatal(o.Err)
				}
				if o.Lock.Token() <= last.Token() {
					t.Errorf("token %d follows %d", o.Lock.Token(), last.Token())
				}
				locktest.Unlock(t, o.Lock)
				awaitNone(t, nodes, names)
				for _, w := range wires {
					w.CheckOnce(t, "acquire", "acquire-all")
				}
			})
		}
	}
}

// With one of three nodes down, those who take their names one by one hold all of them by the others.
func TestReplacingWithANodeDown(t *testing.T) {
	t.Parallel()
	nodes, names := redistest.Nodes(t, 3), severalNames(t)
	c := locktest.Config(redistest.URLs(nodes)...)
	other := locktest.Open(t, c)
	last, out := takenSingly(t, nodes, locktest.Open(t, c), other, names)
	nodes[1].Kill()
	last.Unlock(t.Context()) // which a busy machine's nodes may not say in time
	o := <-out
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	if o.Lock.Token() <= last.Token() {
		t.Errorf("token %d follows %d", o.Lock.Token(), last.Token())
	}
	for _, name := range names {
		if _, err := locktest.TryInTime(t, other, name); !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("%s: %v", name, err)
		}
	}
	locktest.Unlock(t, o.Lock)
	awaitNone(t, []*redistest.Server{nodes[0], nodes[2]}, names)
}

// takenSingly has set lose turns until it takes names one by one and has the first; other has the last.
func takenSingly(t *testing.T, nodes []*redistest.Server, set, other *redlatch.Client, names []string) (last *redlatch.Lock, out <-chan locktest.Outcome) {
	t.Helper()
	ctx := locktest.Within(t, 2*locktest.Patience)
	wait := func(name string) *redlatch.Lock {
		lock, err := other.Lock(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		return lock
	}
	last = wait(names[len(names)-1])
	out = locktest.LockIn(ctx, set, names[1], redlatch.WithAlso(names...), redlatch.WithLabel("set"))
	locktest.Await(t, "the first of the names is taken", func() bool {
		if a, err := other.TryLock(ctx, names[0]); err == nil {
			locktest.Unlock(t, last)
			last = wait(names[len(names)-1])
			locktest.Unlock(t, a)
			return false
		}
		has := 0
		for _, s := range nodes {
			if strings.HasSuffix(locktest.Value(t, s, names[0]), ".set") {
				has++
			}
		}
		return has > len(nodes)/2 // which an attempt for all cannot have
	})
	return last, out
}
