package zookeeper

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/ensemble"
)

// run runs f in the background, unless the client is closed.
func (s *session) run(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.background.Go(f)
	return true
}

// do makes a request, which no ctx ends. It waits for a slot, which the request has until it is over. If
// id is not "", it then waits for the request under way for the same id. It waits for the answer or for
// ctx; if ctx is done first the error is errAbandoned, and the request goes on.
func do[T any](ctx context.Context, s *session, slots ensemble.Slots, id string, request func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if err := slots.Take(ctx); err != nil {
		return none, err
	}
	before, over := s.follow(id)
	out := make(chan result, 1)
	started := s.run(func() {
		defer slots.Free()
		defer s.settle(id, over)
		<-before
		var r result
		r.value, r.err = request()
		out <- r
	})
	if !started {
		slots.Free()
		s.settle(id, over)
		return none, errNotConnected
	}
	select {
	case r := <-out:
		return r.value, r.err
	case <-ctx.Done():
		return none, errAbandoned
	}
}

// settled is closed.
var settled = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// follow returns a channel that is closed when the request before is over, and one to close when
// the new request is over.
func (s *session) follow(id string) (before, over chan struct{}) {
	if id == "" {
		return settled, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before, over = s.last[id], make(chan struct{})
	if before == nil {
		before = settled
	}
	s.last[id] = over
	return before, over
}

func (s *session) settle(id string, over chan struct{}) {
	if over == nil {
		return
	}
	close(over)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last[id] == over {
		delete(s.last, id)
	}
}

// rest pauses before a request in the background is made again. It reports false when the client's
// life has ended.
func (s *session) rest() bool { return s.pause(20 * time.Millisecond) }

func (s *session) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.life.Done():
		return false
	}
}
