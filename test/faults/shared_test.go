package faults

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/vote"
)

// readersHave reports whether readers have the lock on a server.
func readersHave(t *testing.T, s *redistest.Server, name string) bool {
	return strings.HasPrefix(locktest.Value(t, s, name), vote.SharedMark+" ")
}

// readersOn returns how many readers of name a node has.
func readersOn(t *testing.T, s *redistest.Server, name string) int64 {
	t.Helper()
	return locktest.Do(t, s, "ZCARD", "redlatch:{"+name+"}:readers:"+name).(int64)
}

// awaitReaders waits until a node has so many.
func awaitReaders(t *testing.T, s *redistest.Server, name string, n int64) {
	t.Helper()
	locktest.Await(t, fmt.Sprintf("the node has %d readers", n), func() bool { return readersOn(t, s, name) == n })
}

// The servers let a reader in and their replies are lost: the try fails, what it left goes though another
// reads on, and the next holds. So it is with the reply to the release.
func TestRepliesToReadersAreLost(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		for name, how := range locktest.Losses() {
			t.Run(fmt.Sprintf("N=%d %s", n, name), func(t *testing.T) {
				t.Parallel()
				nodes := locktest.Shared(t, n)
				c := locktest.Config(redistest.URLs(nodes)...)
				// lossy is a client to which a majority's reply to the next step is lost, once.
				lossy := func(step string) (client *redlatch.Client, wires []*locktest.Wire, lose, found func()) {
					proxies := redistest.Proxies(t, nodes)
					client, wires = locktest.Open(t, locktest.Through(c, locktest.ProxyURLs(proxies)...)), locktest.Taps(proxies)
					lose = func() {
						for _, w := range wires[:n/2+1] {
							w.Lose(step, how)
						}
					}
					return client, wires, lose, func() { // a connection that lost a reply stays silent
						for _, p := range proxies {
							p.DropReplies(true)
							p.DropReplies(false)
						}
					}
				}
				reader := locktest.TryLock(t, locktest.Open(t, c), t.Name(), redlatch.WithShared())
				client, first, lose, found := lossy("acquire-shared")
				lose()
				lock, err := client.TryLock(t.Context(), t.Name(), redlatch.WithShared())
				if lock != nil || !errors.Is(err, redlatch.ErrNoQuorum) {
					t.Fatalf("held %t, %v", lock != nil, err)
				}
				found()
				locktest.Unlock(t, locktest.TryLock(t, client, t.Name(), redlatch.WithShared()))
				// Another client: that one may still make sure of its releases.
				client, second, lose, found := lossy("release-shared")
				lock = locktest.TryLock(t, client, t.Name(), redlatch.WithShared())
				lose()
				if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrLost) {
					t.Errorf("unlock: %v", err)
				}
				found()
				for _, s := range nodes {
					awaitReaders(t, s, t.Name(), 1)
				}
				locktest.Unlock(t, reader)
				for _, s := range nodes {
					locktest.AwaitValue(t, s, t.Name(), "")
				}
				for _, w := range slices.Concat(first, second) {
					w.CheckOnce(t, "acquire-shared", "confirm-shared", "extend-shared", "repair-shared")
				}
			})
		}
	}
}

// With one of three nodes down readers lock, extend and release; when it is back without what it had, an
// extension gives each what it had there, and a writer is kept out with another node down.
func TestReadersWithANodeDown(t *testing.T) {
	t.Parallel()
	nodes := redistest.Nodes(t, 3)
	config := locktest.Config(redistest.URLs(nodes)...)
	client, other := locktest.Open(t, config), locktest.Open(t, config)
	writer := locktest.TryLock(t, client, t.Name())
	locktest.Unlock(t, writer)
	for _, s := range nodes { // or one that it is still on does not let the first reader in
		locktest.AwaitValue(t, s, t.Name(), "")
	}
	readers := []*redlatch.Lock{
		locktest.TryLock(t, client, t.Name(), redlatch.WithShared(), redlatch.WithoutRenewal()),
		locktest.TryLock(t, other, t.Name(), redlatch.WithShared(), redlatch.WithoutRenewal()),
	}
	// A busy machine's nodes may differ in their counters: who has a smaller token than another reader is not
	// given back what that one was given first.
	locktest.Await(t, "the tokens are the same", func() bool {
		if readers[0].Token() == readers[1].Token() {
			return true
		}
		locktest.Unlock(t, readers[1])
		readers[1] = locktest.TryLock(t, other, t.Name(), redlatch.WithShared(), redlatch.WithoutRenewal())
		return false
	})
	for _, s := range nodes { // each may be of the quorum that is left
		awaitReaders(t, s, t.Name(), 2)
	}
	nodes[1].Kill()
	for _, reader := range readers {
		locktest.Await(t, "extended by two", func() bool { return reader.Extend(t.Context(), locktest.TTL) == nil })
	}
	if err := nodes[1].RestartEmpty(t.Context()); err != nil {
		t.Fatal(err)
	}
	locktest.Await(t, "given back", func() bool {
		for _, reader := range readers {
			if err := reader.Extend(t.Context(), locktest.TTL); err != nil && !locktest.Late(err) {
				t.Fatal(err)
			}
		}
		return readersHave(t, nodes[1], t.Name()) && readersOn(t, nodes[1], t.Name()) == 2
	})
	nodes[2].Kill()
	if _, err := locktest.TryInTime(t, other, t.Name()); !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("with another node down: %v", err)
	}
	last := uint64(0)
	for _, reader := range readers {
		if reader.Token() <= writer.Token() {
			t.Errorf("token %d follows %d", reader.Token(), writer.Token())
		}
		last = max(last, reader.Token())
		locktest.Unlock(t, reader)
	}
	for _, s := range nodes[:2] {
		locktest.AwaitValue(t, s, t.Name(), "")
	}
	next := locktest.TryLock(t, other, t.Name())
	if next.Token() <= last {
		t.Errorf("token %d follows %d", next.Token(), last)
	}
	locktest.Unlock(t, next)
}

// A reader whose process is killed delays a writer by its own TTL, though others read on beside it for
// longer than that.
func TestReaderThatCrashes(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, n)
			proxies := redistest.Proxies(t, nodes)
			c := locktest.Config(locktest.ProxyURLs(proxies)...)
			direct := locktest.Through(c, redistest.URLs(nodes)...)
			crashes, other, third := locktest.Open(t, c), locktest.Open(t, direct), locktest.Open(t, direct)
			gone := locktest.TryLock(t, crashes, t.Name(), redlatch.WithShared(), redlatch.WithTTL(time.Second))
			reader := locktest.TryLock(t, other, t.Name(), redlatch.WithShared())
			for _, p := range proxies { // nothing of it arrives any more
				p.BlackHole(redistest.Requests, true)
			}
			until := gone.Until()
			report, waits := locktest.WhenWaiting(nil)
			out := locktest.LockIn(locktest.Within(t, locktest.Patience), third, t.Name(), report)
			<-waits
			locktest.Await(t, "its validity is over", func() bool { return time.Now().After(until.Add(time.Second / 10)) })
			// What is left of the key is the other's, and goes with it.
			if reader.Err() != nil {
				t.Fatal(reader.Err())
			}
			locktest.Unlock(t, reader)
			for _, s := range nodes {
				locktest.Await(t, "the readers are out", func() bool { return !readersHave(t, s, t.Name()) })
			}
			o := <-out
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			if o.Lock.Token() <= max(gone.Token(), reader.Token()) || gone.Err() == nil {
				t.Errorf("token %d follows %d and %d; the first is %v", o.Lock.Token(), gone.Token(), reader.Token(), gone.Err())
			}
			locktest.Unlock(t, o.Lock)
		})
	}
}

// A client of another library that uses plain commands is a writer: readers exclude it and it excludes
// readers, who are told when it lets go.
func TestReadersBesidePlainClients(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		nodes := locktest.SharedOf(t, binary, 3)
		client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
		name := t.Name()
		plain := func() (granted int) {
			for _, s := range nodes {
				if locktest.Do(t, s, "SET", name, "plain", "NX", "PX", "60000") != nil {
					granted++
				}
			}
			return granted
		}
		release := func() {
			for _, s := range nodes {
				locktest.Do(t, s, "EVAL", locktest.CompareAndDelete, "1", name, "plain")
			}
		}
		if got := plain(); got != 3 {
			t.Fatalf("the plain client has %d nodes", got)
		}
		if _, err := locktest.TryInTime(t, client, name, redlatch.WithShared()); !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("beside a plain client: %v", err)
		}
		var waiting []<-chan locktest.Outcome
		for range 3 {
			report, waits := locktest.WhenWaiting(nil)
			waiting = append(waiting, locktest.RLockIn(locktest.Within(t, locktest.Patience), client, name, report))
			<-waits
		}
		release()
		var readers []*redlatch.Lock
		for _, out := range waiting {
			o := <-out
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			readers = append(readers, o.Lock)
			if got := plain(); got > 1 { // one may have been late, as to the reader
				t.Errorf("the plain client has %d nodes beside readers", got)
			}
			release()
		}
		for _, reader := range readers {
			if reader.Err() != nil {
				t.Error(reader.Err())
			}
			locktest.Unlock(t, reader)
		}
		for _, s := range nodes {
			locktest.AwaitValue(t, s, name, "")
		}
	})
}
