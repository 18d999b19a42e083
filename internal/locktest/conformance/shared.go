package conformance

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// shared makes a try a reader's.
var shared = redlatch.WithShared()

// Readers of one client and of several hold together, and no writer; a writer holds alone.
func readersOrAWriter(t *testing.T, s Stage) {
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	readers := []*redlatch.Lock{
		locktest.TryLock(t, client, t.Name(), shared), locktest.TryLock(t, client, t.Name(), shared),
		locktest.TryLock(t, other, t.Name(), shared),
	}
	for i := range s.Nodes() {
		locktest.Await(t, "the key says that readers have it", func() bool { return strings.HasPrefix(s.Value(t, i, t.Name()), "redlatch:shared ") })
	}
	for _, reader := range readers {
		for _, c := range []Client{client, other} {
			_, err := locktest.TryInTime(t, c, t.Name())
			if holder, left, ok := locktest.FailureOf(t, err).Holder(); !errors.Is(err, redlatch.ErrHeld) || !ok || !holder.Shared || left <= 0 {
				t.Fatalf("beside readers: %v", err)
			}
		}
		if err := reader.Extend(t.Context(), 25*time.Second); err != nil && !locktest.Late(err) {
			t.Error(err)
		}
		locktest.Unlock(t, reader)
	}
	awaitGone(t, s, t.Name())
	writer := locktest.TryLock(t, other, t.Name())
	for _, c := range []Client{client, other} {
		_, err := locktest.TryInTime(t, c, t.Name(), shared)
		if holder, _, ok := locktest.FailureOf(t, err).Holder(); !errors.Is(err, redlatch.ErrHeld) || !ok || holder.Shared {
			t.Fatalf("beside a writer: %v", err)
		}
	}
	locktest.Unlock(t, writer)
	awaitGone(t, s, t.Name())
}

// A reader's token is larger than every earlier writer's, and smaller than every later one's.
func readersTokens(t *testing.T, s Stage) {
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	last := uint64(0)
	for range 5 {
		writer := locktest.TryLock(t, client, t.Name())
		if writer.Token() <= last {
			t.Errorf("the writer's token %d follows %d", writer.Token(), last)
		}
		locktest.Unlock(t, writer)
		awaitGone(t, s, t.Name())
		last = writer.Token()
		for _, c := range []Client{client, other, other} {
			reader := locktest.TryLock(t, c, t.Name(), shared)
			defer reader.Unlock(t.Context())
			if reader.Token() <= writer.Token() {
				t.Errorf("the reader's token %d follows %d", reader.Token(), writer.Token())
			}
			last = max(last, reader.Token())
			if c == client {
				continue
			}
			locktest.Unlock(t, reader)
		}
		for i := range s.Nodes() {
			s.Set(t, i, t.Name(), "") // the first reader has lost it
		}
	}
}

// Another library's lock keeps readers out until it expires or is deleted.
func readersAndForeign(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	for i := range s.Nodes() {
		s.Set(t, i, t.Name(), "foreign")
	}
	_, err := locktest.TryInTime(t, client, t.Name(), shared)
	if holder, _, _ := locktest.FailureOf(t, err).Holder(); !errors.Is(err, redlatch.ErrHeld) || holder.ID != "foreign" {
		t.Errorf("%v", err)
	}
	for i := range s.Nodes() {
		s.Set(t, i, t.Name(), "")
	}
	locktest.Unlock(t, locktest.TryLock(t, client, t.Name(), shared))
	awaitGone(t, s, t.Name())
}

// awaitWriter waits until a writer is known to wait, so that a reader who comes is refused.
func awaitWriter(t *testing.T, c Client, name string) {
	t.Helper()
	locktest.Await(t, "a reader is refused", func() bool {
		lock, err := c.TryLock(t.Context(), name, shared)
		if err == nil {
			locktest.Unlock(t, lock)
		}
		return errors.Is(err, redlatch.ErrHeld)
	})
}

// A writer who waits for readers keeps others out who come later, and those go in after it.
func waitingWriterFirst(t *testing.T, s Stage) {
	clients := [3]Client{s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})}
	locktest.Await(t, "the writer is first, and soon", func() bool { return writerFirst(t, clients) })
	awaitGone(t, s, t.Name())
}

// writerFirst has a writer wait for a reader, and another reader come, and reports whether the writer was
// first, as soon as the reader had gone: on a busy machine it may miss its turn.
func writerFirst(t *testing.T, clients [3]Client) bool {
	reader := locktest.TryLock(t, clients[0], t.Name(), shared)
	writer := locktest.LockIn(locktest.Within(t, locktest.Patience), clients[1], t.Name())
	awaitWriter(t, clients[2], t.Name())
	report, waits := locktest.WhenWaiting(nil)
	late := locktest.RLockIn(locktest.Within(t, locktest.Patience), clients[2], t.Name(), report)
	select {
	case <-waits:
	case <-time.After(time.Second): // it may be in
	}
	time.Sleep(10 * time.Millisecond) // until it rests: its coming to the queue may wake up the writer, too
	locktest.Unlock(t, reader)
	released := time.Now()
	var before uint64
	first := false
	for range 2 {
		var o locktest.Outcome
		select {
		case o = <-writer:
			first = before == 0 && time.Since(released) < soon
		case o = <-late:
		}
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		if o.Lock.Token() <= before {
			t.Errorf("token %d follows %d", o.Lock.Token(), before)
		}
		before = o.Lock.Token()
		locktest.Unlock(t, o.Lock)
	}
	return first
}

// Readers who wait for a writer hold together when it leaves.
func waitingReadersTogether(t *testing.T, s Stage) {
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	for _, holder := range []Client{client, other} {
		writer := locktest.TryLock(t, holder, t.Name())
		var waiting []<-chan locktest.Outcome
		for _, c := range []Client{client, other, client} {
			report, waits := locktest.WhenWaiting(nil)
			waiting = append(waiting, locktest.RLockIn(locktest.Within(t, locktest.Patience), c, t.Name(), report))
			<-waits
		}
		locktest.Unlock(t, writer)
		var readers []*redlatch.Lock
		for _, out := range waiting { // none has left when the last has come
			o := <-out
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			readers = append(readers, o.Lock)
			if o.Lock.Token() <= writer.Token() {
				t.Errorf("the reader's token %d follows the writer's, %d", o.Lock.Token(), writer.Token())
			}
		}
		for _, reader := range readers {
			locktest.Unlock(t, reader)
		}
		awaitGone(t, s, t.Name())
	}
}

// A reader who is not heard of any more has the lock until its TTL is over, however long others who read
// beside it have theirs.
func readersExpire(t *testing.T, s Stage) {
	client, other := s.Open(t, redlatch.Config{}), s.Open(t, redlatch.Config{})
	reader := locktest.TryLock(t, other, t.Name(), shared)
	gone := locktest.TryLock(t, client, t.Name(), shared, redlatch.WithTTL(time.Second), redlatch.WithoutRenewal())
	kept := 0
	for i := range s.Nodes() {
		if s.Left(t, i, t.Name()) > 5*time.Second {
			kept++
		}
	}
	if kept < stolen(s) && time.Until(reader.Until()) > 10*time.Second {
		t.Errorf("%d nodes keep the key for the reader who has it for longer", kept)
	}
	locktest.Await(t, "it is over", func() bool { return gone.Err() != nil })
	if reader.Err() != nil {
		t.Errorf("the other is %v", reader.Err())
	}
	time.Sleep(max(0, time.Until(gone.Until())))
	writer := locktest.LockIn(locktest.Within(t, locktest.Patience), client, t.Name())
	awaitWriter(t, other, t.Name())
	locktest.Unlock(t, reader)
	o := <-writer
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	locktest.Unlock(t, o.Lock)

	short := locktest.TryLock(t, client, t.Name(), shared, redlatch.WithTTL(time.Second), redlatch.WithoutRenewal())
	long := locktest.TryLock(t, other, t.Name(), shared)
	locktest.Unlock(t, long)
	for i := range s.Nodes() {
		locktest.Await(t, "the key is kept for who is left", func() bool { return s.Left(t, i, t.Name()) <= time.Second })
	}
	next, err := other.Lock(locktest.Within(t, locktest.Patience), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(short.Until()); left > 0 {
		t.Errorf("a writer has it %v before the end of a reader's validity", left)
	}
	locktest.Unlock(t, next)
	awaitGone(t, s, t.Name())
}

// Many readers and writers of several clients, some of which give up: no writer is beside anybody,
// tokens are in order, all come to an end, and nothing is left.
func readersAtOnce(t *testing.T, s Stage) {
	const clients, callers, rounds = 4, 3, 12
	gate := &locktest.Readers{T: t}
	ctx := locktest.Within(t, 3*locktest.Patience)
	var group sync.WaitGroup
	for i := range clients {
		client := s.Open(t, redlatch.Config{})
		for k := range callers {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(k)))
			group.Go(func() {
				for range rounds {
					attempt, cancel := ctx, context.CancelFunc(func() {})
					if rng.IntN(4) == 0 {
						attempt, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(10))*time.Millisecond)
					}
					reads := rng.IntN(3) > 0
					held, err := lockAs(attempt, client, t.Name(), reads)
					switch {
					case err == nil:
						gate.Pass(held, reads, func() { time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond) })
					case attempt == ctx || ctx.Err() != nil:
						t.Errorf("reader %t: %v", reads, err)
					}
					cancel()
				}
			})
		}
	}
	group.Wait()
	awaitGone(t, s, t.Name())
	t.Logf("%d together at most", gate.Together())
}

// lockAs locks as a reader or as a writer.
func lockAs(ctx context.Context, client Client, name string, reads bool) (*redlatch.Lock, error) {
	if reads {
		return client.RLock(ctx, name)
	}
	return client.Lock(ctx, name)
}

// What cannot work is refused before anything is sent.
func readersRefused(t *testing.T, s Stage) {
	client := s.Open(t, redlatch.Config{})
	reader, err := client.RLock(t.Context(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Detach(); !errors.Is(err, redlatch.ErrInvalid) || reader.Err() != nil {
		t.Errorf("detached: %v; the lock is %v", err, reader.Err())
	}
	inside := reader.Context()
	for what, err := range map[string]error{
		"a reader inside a reader": locktest.ErrorOf(client.RLock(inside, t.Name())),
		"a writer inside a reader": locktest.ErrorOf(client.Lock(inside, t.Name())),
		"WithoutQueue":             locktest.ErrorOf(client.RLock(t.Context(), t.Name(), redlatch.WithoutQueue())),
		"WithAlso":                 locktest.ErrorOf(client.RLock(t.Context(), t.Name(), redlatch.WithAlso("another"))),
		"WithPermits":              locktest.ErrorOf(client.RLock(t.Context(), t.Name(), redlatch.WithPermits(2))),
		"LockAll":                  locktest.ErrorOf(client.LockAll(t.Context(), []string{t.Name()}, shared)),
		"Campaign":                 client.Campaign(t.Context(), t.Name(), func(context.Context) error { return nil }, shared),
	} {
		if !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	locktest.Unlock(t, reader)
	writer := locktest.TryLock(t, client, t.Name())
	if _, err := client.RLock(writer.Context(), t.Name()); !errors.Is(err, redlatch.ErrInvalid) {
		t.Errorf("a reader inside a writer: %v", err)
	}
	locktest.Unlock(t, writer)
	awaitGone(t, s, t.Name())
}
