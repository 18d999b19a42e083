package redlatch_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// turnstile sees everybody who has one lock, from having it to before the
// release.
type turnstile struct {
	t interface {
		Errorf(format string, args ...any)
	}

	mu     sync.Mutex // guards what follows
	inside *redlatch.Lock
	last   uint64
	order  []string
}

// enter checks that whoever was in before relies on the lock no more, and that
// the token grew.
func (s *turnstile) enter(lock *redlatch.Lock, who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inside != nil && s.inside.Err() == nil && lock.Err() == nil {
		s.t.Errorf("two holders: %s has token %d, and token %d is still held", who, lock.Token(), s.inside.Token())
	}
	if lock.Token() <= s.last {
		s.t.Errorf("%s has token %d, and %d was before", who, lock.Token(), s.last)
	}
	s.inside, s.last = lock, lock.Token()
	s.order = append(s.order, who)
}

func (s *turnstile) leave(lock *redlatch.Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inside == lock {
		s.inside = nil
	}
}

// pass takes a lock in and out again, and reports whether it was still held when
// it was unlocked.
func (s *turnstile) pass(lock *redlatch.Lock, who string) bool {
	s.enter(lock, who)
	held := lock.Err() == nil
	s.leave(lock)
	return lock.Unlock(context.Background()) == nil && held
}

func (s *turnstile) passed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.order)
}

// whole is the order so far, one word for each who came in.
func (s *turnstile) whole() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.order, " ")
}

// lineKey is the key of the line for a name without braces.
func lineKey(name string) string { return "redlatch:{" + name + "}:line:" + name }

// standing returns how many places there are in the lines for name on each
// node.
func standing(t *testing.T, nodes []*redistest.Server, name string) []int {
	t.Helper()
	all := make([]int, len(nodes))
	for i, s := range nodes {
		all[i] = int(do(t, s, "ZCARD", lineKey(name)).(int64))
	}
	return all
}

// awaitQueued waits until there are n places in the line for name on one node
// and none elsewhere, and returns that node's index.
func awaitQueued(t *testing.T, nodes []*redistest.Server, name string, n int) (arbiter int) {
	t.Helper()
	await(t, fmt.Sprintf("%d stand in the line for %s", n, name), func() bool {
		total := 0
		for i, k := range standing(t, nodes, name) {
			if total += k; k == n {
				arbiter = i
			}
		}
		return total == n
	})
	return arbiter
}
