package locktest

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
)

// Turnstile sees everybody who has one lock, from having it to before the
// release.
type Turnstile struct {
	T interface {
		Errorf(format string, args ...any)
	}

	mu     sync.Mutex // guards what follows
	inside *redlatch.Lock
	last   uint64
	Order  []string
}

// Enter checks that whoever was in before relies on the lock no more, and that
// the token grew.
func (s *Turnstile) Enter(lock *redlatch.Lock, who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inside != nil && s.inside.Err() == nil && lock.Err() == nil {
		s.T.Errorf("two holders: %s has token %d, and token %d is still held", who, lock.Token(), s.inside.Token())
	}
	// A lock that is over may be the earlier one: on a busy machine its holder may come that late.
	if lock.Token() <= s.last && lock.Err() == nil {
		s.T.Errorf("%s has token %d, and %d was before", who, lock.Token(), s.last)
	}
	s.inside, s.last = lock, max(s.last, lock.Token())
	s.Order = append(s.Order, who)
}

// Leave notes that the lock is about to be released.
func (s *Turnstile) Leave(lock *redlatch.Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inside == lock {
		s.inside = nil
	}
}

// moment is how long Pass holds a lock, so that one who comes beside it is seen.
const moment = time.Millisecond

// Pass takes a lock in and, after a moment, out again, and reports whether it was still held when
// it was unlocked.
func (s *Turnstile) Pass(lock *redlatch.Lock, who string) bool {
	s.Enter(lock, who)
	time.Sleep(moment)
	held := lock.Err() == nil
	s.Leave(lock)
	return lock.Unlock(context.Background()) == nil && held
}

// PassNext waits for the lock of a caller that waits, and has it pass.
func (s *Turnstile) PassNext(out <-chan Outcome, who string) {
	o := <-out
	if o.Err != nil {
		s.T.Errorf("%s: %v", who, o.Err)
		return
	}
	s.Pass(o.Lock, who)
}

// Passed returns how many came in.
func (s *Turnstile) Passed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.Order)
}

// Whole is the order so far, one word for each who came in.
func (s *Turnstile) Whole() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.Order, " ")
}

// Turnstiles are one for each name, for locks of one name and of several. T is theirs.
type Turnstiles struct {
	T interface {
		Errorf(format string, args ...any)
	}

	mu sync.Mutex // guards of
	of map[string]*Turnstile
}

func (s *Turnstiles) at(lock *redlatch.Lock) []*Turnstile {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[string]*Turnstile)
	}
	var each []*Turnstile
	for _, name := range lock.Names() {
		if s.of[name] == nil {
			s.of[name] = &Turnstile{T: s.T}
		}
		each = append(each, s.of[name])
	}
	return each
}

// Enter is Turnstile.Enter at each name of the lock.
func (s *Turnstiles) Enter(lock *redlatch.Lock, who string) {
	for _, one := range s.at(lock) {
		one.Enter(lock, who)
	}
}

// Pass is Turnstile.Pass at each name of the lock, with what is to be done while it is held; nil for
// nothing but to hold it for a moment.
func (s *Turnstiles) Pass(lock *redlatch.Lock, who string, held func()) {
	s.Enter(lock, who)
	if held == nil {
		held = func() { time.Sleep(moment) }
	}
	held()
	for _, one := range s.at(lock) {
		one.Leave(lock)
	}
	lock.Unlock(context.Background())
}
