package redistest

import (
	"fmt"
	"time"
)

// StepClock moves the server's wall clock by d, to the microsecond, forward or
// back, as an operator or a time daemon might; steps add up and outlast a
// restart. The server's monotonic clock is left as it is. Keys expire by the
// wall clock: a step of their remaining TTL makes them expire.
//
// The step has been made when StepClock returns: a command sent after it is
// executed under the new time. It needs Options.ClockShim.
func (s *Server) StepClock(d time.Duration) error {
	if s.clock == nil {
		return fmt.Errorf("redistest: stepping the clock of %s needs Options.ClockShim", s.Addr())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // the offset is unmapped
		return fmt.Errorf("redistest: stepping the clock of %s: %w", s.Addr(), ErrClosed)
	}
	s.clock.step(d)
	return nil
}
