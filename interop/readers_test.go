package interop

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// reading makes a lock that of a reader.
var reading = redlatch.WithShared()

// eachRedsync runs f with redsync over one node and three, on every kind of server.
func eachRedsync(t *testing.T, f func(t *testing.T, m *match)) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			eachFlavor(t, func(t *testing.T, binary string) {
				nodes := servers(t, binary, n)
				f(t, &match{nodes, openRedsync(t, nodes), open(t, nodes, "{name}"), lockName(t), "{name}"})
			})
		})
	}
}

// another opens another client, whose readers have holds of their own.
func (m *match) another(t *testing.T) *redlatch.Client { return open(t, m.nodes, m.template) }

// read has a client read.
func (m *match) read(t *testing.T, client *redlatch.Client) *redlatch.Lock {
	t.Helper()
	lock, err := client.RLock(within(t, patience), m.name)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// readersHave reports whether a majority of the nodes has readers.
func (m *match) readersHave(t *testing.T) bool {
	n := 0
	for _, v := range m.values(t) {
		if strings.HasPrefix(v, "redlatch:shared ") {
			n++
		}
	}
	return n > len(m.nodes)/2
}

// redsync holds: a reader is told so, waits, and reads when it is released. Readers read: redsync fails while
// any of them does, and has the lock after the last.
func TestRedsyncBesideReaders(t *testing.T) {
	t.Parallel()
	eachRedsync(t, func(t *testing.T, m *match) {
		other := m.another(t)
		m.theyAcquire(t, long)
		id := m.holder(t)
		_, err := locktest.TryInTime(t, m.ours, m.name, reading)
		failure, ok := errors.AsType[*redlatch.QuorumError](err)
		if !ok || !errors.Is(err, redlatch.ErrHeld) {
			t.Fatalf("while they hold the lock: %v", err)
		}
		if holder, left, ok := failure.Holder(); !ok || holder.ID != id || holder.Shared || left <= 0 || left > long {
			t.Errorf("their holder is %+v with %v left, and %q is stored", holder, left, id)
		}
		out := m.oursWaits(t, within(t, patience), reading)
		if !m.theyRelease(t) {
			t.Error("they found their lock gone")
		}
		first := <-out
		if first.err != nil {
			t.Fatal(first.err)
		}
		if m.theyTry(t, long) {
			t.Error("they took it from a reader")
		}
		second := m.read(t, other)
		if m.theyTry(t, long) {
			t.Error("they took it from two readers")
		}
		if err := first.lock.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if m.theyTry(t, long) {
			t.Error("they took it from the last reader")
		}
		if err := second.Err(); err != nil || !m.readersHave(t) {
			t.Errorf("the last reader: %v; the nodes have %q", err, m.values(t))
		}
		if err := second.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.theyAcquire(t, long)
		m.theyRelease(t)
	})
}

// redsync's is not released and runs out: readers read then, and its late release takes the lock from none.
func TestRedsyncRunsOutBeforeReaders(t *testing.T) {
	t.Parallel()
	eachRedsync(t, func(t *testing.T, m *match) {
		began := time.Now()
		m.theyAcquire(t, brief)
		readers := []*redlatch.Lock{m.read(t, m.ours)}
		if waited := time.Since(began); waited < brief-brief/100 { // by which clocks may differ
			t.Errorf("a reader has taken it from them: they had it for %v, and %v have passed", brief, waited)
		}
		readers = append(readers, m.read(t, m.another(t)))
		m.theyRelease(t)
		if !m.readersHave(t) {
			t.Errorf("after their late release the nodes have %q", m.values(t))
		}
		for _, reader := range readers {
			if err := reader.Err(); err != nil {
				t.Error(err)
			}
			if err := reader.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// Readers are not renewed and run out, one after the other: redsync has the lock after the last, and their late
// releases leave it alone.
func TestReadersRunOutBeforeRedsync(t *testing.T) {
	t.Parallel()
	eachRedsync(t, func(t *testing.T, m *match) {
		var readers []*redlatch.Lock
		for _, client := range []*redlatch.Client{m.ours, m.another(t)} {
			lock, err := client.RLock(within(t, patience), m.name, redlatch.WithTTL(brief), redlatch.WithoutRenewal())
			if err != nil {
				t.Fatal(err)
			}
			readers = append(readers, lock)
		}
		m.theyAcquire(t, long)
		for _, reader := range readers {
			if err := reader.Err(); !errors.Is(err, redlatch.ErrLost) {
				t.Errorf("they hold the lock and a reader is %v", err)
			}
			m.keeps(t, func() {
				if err := reader.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
					t.Errorf("unlock: %v", err)
				}
			})
		}
		if _, err := locktest.TryInTime(t, m.ours, m.name, reading); !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("while they hold the lock: %v", err)
		}
		if !m.theyRelease(t) {
			t.Error("they found their lock gone")
		}
	})
}
