package interop

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// long is a TTL that no test sees the end of; brief is one that ends, and of which some libraries
// give a node a part to answer in.
const (
	long  = time.Minute
	brief = 3 * time.Second
)

// match is one library and Redlatch on the same servers.
type match struct {
	nodes    []*redistest.Server
	theirs   peer
	ours     *redlatch.Client
	name     string // of the lock
	template string
}

// eachLibrary runs f for every row of the table, on every kind of server.
func eachLibrary(t *testing.T, f func(t *testing.T, m *match)) {
	for _, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			eachFlavor(t, func(t *testing.T, binary string) {
				nodes := servers(t, binary, l.nodes)
				f(t, &match{nodes, l.open(t, nodes), open(t, nodes, l.template), lockName(t), l.template})
			})
		})
	}
}

func (m *match) key() string { return strings.ReplaceAll(m.template, "{name}", m.name) }

// holder is the value that a majority of the nodes has.
func (m *match) holder(t *testing.T) string {
	t.Helper()
	votes := make(map[string]int)
	for _, v := range m.values(t) {
		votes[v]++
		if v != "" && votes[v] > len(m.nodes)/2 {
			return v
		}
	}
	t.Fatalf("no majority has one holder: %v", votes)
	return ""
}

// values are what the nodes have at the lock's key, "" for nothing.
func (m *match) values(t *testing.T) []string {
	t.Helper()
	found := make([]string, len(m.nodes))
	for i, s := range m.nodes {
		found[i], _ = do(t, s, "GET", m.key()).(string)
	}
	return found
}

// keeps expects that act takes the lock from its holder on no node.
func (m *match) keeps(t *testing.T, act func()) {
	t.Helper()
	holder, before := m.holder(t), m.values(t)
	act()
	for i, v := range m.values(t) {
		if before[i] == holder && v != holder {
			t.Errorf("node %d has %q now", i, v)
		}
	}
}

// theyTry has them make one try.
func (m *match) theyTry(t *testing.T, ttl time.Duration) bool {
	t.Helper()
	held, err := m.theirs.acquire(t.Context(), m.name, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// theyAcquire waits until they hold the lock.
func (m *match) theyAcquire(t *testing.T, ttl time.Duration) {
	t.Helper()
	await(t, "they hold the lock", func() bool { return m.theyTry(t, ttl) })
}

func (m *match) theyRelease(t *testing.T) (held bool) {
	t.Helper()
	held, err := m.theirs.release(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// oursWaits starts a Lock and returns, when its first try has failed, where its
// outcome will be.
func (m *match) oursWaits(t *testing.T, ctx context.Context, options ...redlatch.Option) <-chan outcome {
	t.Helper()
	waits := make(chan struct{})
	var once sync.Once
	out := make(chan outcome, 1)
	go func() {
		report := redlatch.WithWaitReport(func(error) { once.Do(func() { close(waits) }) })
		lock, err := m.ours.Lock(ctx, m.name, append(options, report)...)
		out <- outcome{lock, err}
	}()
	select {
	case <-waits:
	case o := <-out:
		t.Fatalf("it did not wait: %v, %v", o.lock, o.err)
	}
	return out
}

type outcome struct {
	lock *redlatch.Lock
	err  error
}

// Theirs holds: ours is told so, waits, and has the lock when it is released.
// Ours holds: theirs fails, and has the lock after.
func TestEachExcludesTheOther(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, m *match) {
		m.theyAcquire(t, long)
		id := m.holder(t)
		_, err := locktest.TryInTime(t, m.ours, m.name)
		failure, ok := errors.AsType[*redlatch.QuorumError](err)
		if !ok || !errors.Is(err, redlatch.ErrHeld) {
			t.Fatalf("while they hold the lock: %v", err)
		}
		if holder, left, ok := failure.Holder(); !ok || holder.ID != id || holder.Label != "" || left <= 0 || left > long {
			t.Errorf("their holder is %+v with %v left, and %q is stored", holder, left, id)
		}
		out := m.oursWaits(t, within(t, patience))
		if !m.theyRelease(t) {
			t.Error("they found their lock gone")
		}
		o := <-out
		if o.err != nil {
			t.Fatal(o.err)
		}
		if m.theyTry(t, long) {
			t.Error("they took ours")
		}
		if err := o.lock.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.theyAcquire(t, long)
		m.theyRelease(t)
	})
}

// Theirs is not released and runs out: ours waits for that, and their late
// release leaves ours alone.
func TestTheirsRunsOut(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, m *match) {
		began := time.Now()
		m.theyAcquire(t, brief)
		lock, err := m.ours.Lock(within(t, patience), m.name)
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited < brief-brief/100 { // by which clocks may differ
			t.Errorf("ours has taken it from them: they had it for %v, and %v have passed", brief, waited)
		}
		m.keeps(t, func() { m.theyRelease(t) })
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Ours is not renewed and runs out: theirs has the lock then, and our late
// release leaves theirs alone.
func TestOursRunsOut(t *testing.T) {
	t.Parallel()
	eachLibrary(t, func(t *testing.T, m *match) {
		lock, err := m.ours.Lock(within(t, patience), m.name, redlatch.WithTTL(brief), redlatch.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		m.theyAcquire(t, long)
		if err := lock.Err(); !errors.Is(err, redlatch.ErrLost) {
			t.Errorf("they hold the lock and ours is %v", err)
		}
		m.keeps(t, func() {
			if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLost) {
				t.Errorf("unlock: %v", err)
			}
		})
		if _, err := locktest.TryInTime(t, m.ours, m.name); !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("while they hold the lock: %v", err)
		}
		if !m.theyRelease(t) {
			t.Error("they found their lock gone")
		}
	})
}
