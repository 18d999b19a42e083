package redlatch

import (
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/quorum"
)

// Option changes one call of Lock, RLock, LockAll, Acquire, TryLock, Do, TryDo or Campaign.
type Option func(*settings)

// settings is what one call asks for.
type settings struct {
	ttl, maxHold time.Duration
	minHold      time.Duration
	// firstTTL is the TTL that an attempt asks for. With minHold it covers minHold, so that the
	// lock is kept even if nobody is left to prolong it.
	firstTTL time.Duration
	guard    time.Duration
	guarded  bool // WithGuard was given
	renewal  bool
	bounded  bool // WithMaxHold was given
	leading  bool // by Campaign
	queue    bool
	label    string
	report   func(error)
	reported bool // WithWaitReport was given
	also     *[]string
	shared   bool // WithShared
	permits  *int // WithPermits
}

// WithTTL sets how long the servers keep this lock when they do not hear from its holder. At most
// Config.MaxTTL. Defaults to Config.TTL.
func WithTTL(d time.Duration) Option { return func(s *settings) { s.ttl = d } }

// WithoutRenewal leaves it to the caller to extend the lock. Otherwise the client renews it in the
// background until MaxHold.
func WithoutRenewal() Option { return func(s *settings) { s.renewal = false } }

// WithoutQueue makes Lock try again at random times, as the Redlock paper does, instead of joining
// the wait queue. Lock may then get the lock before clients that have queued for longer, or much
// later. Each try costs one command on each node.
func WithoutQueue() Option { return func(s *settings) { s.queue = false } }

// WithMaxHold sets for how long after its acquisition this lock is renewed. The lock then runs out,
// with ErrMaxHold. Defaults to Config.MaxHold.
func WithMaxHold(d time.Duration) Option {
	return func(s *settings) { s.maxHold, s.bounded = d, true }
}

// WithMinHold keeps the lock for at least d after it was granted, even if fn returns, Unlock is
// called or the process dies before that. It is for a job that several machines start at the same
// time: if the job takes less time than their clocks differ, the last machine would otherwise find
// the lock free and do the job again.
//
// The caller is not delayed: Unlock and Do return as they do without it. The client releases the
// lock when d is over, or gives it to its next caller, who waits until then. The servers keep the
// lock without the client, too: if d is longer than the TTL their TTL is d with what an attempt
// may take, and Unlock prolongs the lock once, as Extend does, if the rest is too short. After
// Close, or when the process ends, the lock lasts until its TTL has run out. d is measured from
// the grant by this process's monotonic clock, and the servers keep the lock for the drift longer,
// so that d is over by their clocks as well. The lock's context ends with Unlock. A lock that was
// lost is not kept. A lock that was detached is left to the program that has its id.
//
// If Unlock cannot prolong the lock, it returns ErrNoQuorum or another error of Extend, and the
// lock is kept as long as it can be. If it finds the lock lost, it returns ErrLost. If it need not
// prolong the lock, it asks no node.
//
// d is at most MaxTTL without its drift, 1 % and 2 ms, and no more than MaxHold; otherwise the
// error wraps ErrInvalid.
func WithMinHold(d time.Duration) Option { return func(s *settings) { s.minHold = d } }

// WithLabel sets the label that tells others who holds this lock. Defaults to Config.Label.
func WithLabel(label string) Option { return func(s *settings) { s.label = label } }

// WithGuard sets how long before the end of its validity the lock counts as lost. This is the time
// to stop the work that the lock protects. It must be less than the TTL without its drift, 1 % and
// 2 ms. Defaults to a tenth of the TTL. With a third of the TTL or more the lock is renewed more often.
func WithGuard(d time.Duration) Option { return func(s *settings) { s.guard, s.guarded = d, true } }

// WithWaitReport calls fn with a *QuorumError that says what Lock waits for, at once and then every
// second or two. The goroutine that waits for the lock calls fn, and waits for it; fn must not call
// Close, which waits for that call of Lock. If fn panics or calls runtime.Goexit, so does that call
// of Lock, and the next caller contends for the lock.
func WithWaitReport(fn func(error)) Option {
	return func(s *settings) { s.report, s.reported = fn, true }
}

// WithShared makes the call lock as a reader: TryLock, Do and TryDo then do what RLock does.
// TryLock also fails with ErrHeld when only readers have the lock, but a writer waits.
func WithShared() Option { return func(s *settings) { s.shared = true } }

// WithAlso makes the call lock further names together with its own, all or none: TryLock, Do and
// TryDo then do what LockAll does. The names of several WithAlso add up.
func WithAlso(names ...string) Option {
	names = slices.Clone(names) // the caller may change its own before the call
	return func(s *settings) {
		also := names
		if s.also != nil {
			also = slices.Concat(*s.also, names)
		}
		s.also = &also
	}
}

// WithPermits makes the call take one of k permits of its name: TryLock, Do and TryDo then do what
// Acquire does. Permits and the lock of the same name do not exclude each other. WithPermits cannot
// be combined with WithAlso or WithShared, or used with Campaign.
func WithPermits(k int) Option { return func(s *settings) { s.permits = &k } }

// settings sets s to what a call with these options asks for.
func (c *Client) settings(s *settings, options []Option) error {
	*s = settings{ttl: c.config.TTL, maxHold: c.config.MaxHold, renewal: true, queue: true, label: c.config.Label}
	for i, option := range options {
		if option == nil {
			return invalid("options[%d] is nil: leave it out", i)
		}
		option(s)
	}
	if s.reported && s.report == nil {
		return invalid("WithWaitReport has no function: pass one, or leave the option out")
	}
	if err := s.lead(); err != nil {
		return err
	}
	ttl, err := wholeTTL("WithTTL", s.ttl, c.config.MaxTTL)
	if err != nil {
		return err
	}
	s.ttl = ttl
	if !s.guarded {
		s.guard = s.ttl / 10
	}
	if validity := s.ttl - quorum.Drift(s.ttl); s.guard < 0 || s.guard >= validity {
		return invalid("WithGuard is %v: it must be less than the TTL of %v without its drift, and not negative", s.guard, s.ttl)
	}
	if s.maxHold <= 0 {
		return invalid("WithMaxHold is %v: it must be positive", s.maxHold)
	}
	if err := c.checkMinHold(s); err != nil {
		return err
	}
	if s.label == c.config.Label {
		return nil
	}
	return checkLabel("WithLabel", s.label)
}

// renewEach returns the time from one renewal to the next: a third of the TTL or, where the guard
// leaves less than that, half of the time in which the lock does not yet count as lost.
func (s *settings) renewEach() time.Duration {
	return max(min(s.ttl/3, (s.ttl-quorum.Drift(s.ttl)-s.guard)/2), s.ttl/100)
}

// endless is a MaxHold that is never over.
const endless = 100 * 365 * 24 * time.Hour

// lead makes a lead last for as long as its work runs, and refuses options that would end it
// earlier.
func (s *settings) lead() error {
	switch {
	case !s.leading:
		return nil
	case s.bounded:
		return invalid("WithMaxHold: Campaign leads for as long as fn runs: leave it out, and have fn return when its time is over")
	case s.permits != nil:
		return invalid("WithPermits: Campaign has one leader at a time: leave it out")
	case !s.renewal:
		return invalid("WithoutRenewal: Campaign leads for as long as fn runs: leave it out")
	}
	s.maxHold = endless
	return nil
}

// checkMinHold refuses a WithMinHold that the servers could not keep by themselves, and sets
// firstTTL by it.
func (c *Client) checkMinHold(s *settings) error {
	longest := c.config.MaxTTL - quorum.Drift(c.config.MaxTTL)
	switch {
	case s.minHold < 0:
		return invalid("WithMinHold is %v: it must not be negative", s.minHold)
	case s.minHold > longest:
		return invalid("WithMinHold is %v: with Config.MaxTTL %v the servers keep a lock by themselves for %v at most, which is MaxTTL without its drift: raise MaxTTL (on Redis, for all clients, with redlatch deployment set)", s.minHold, c.config.MaxTTL, longest)
	case s.minHold > s.maxHold:
		return invalid("WithMinHold is %v, more than the MaxHold of %v: raise WithMaxHold or Config.MaxHold", s.minHold, s.maxHold)
	}
	s.firstTTL = s.ttl
	if s.minHold > 0 {
		// The time that the steps of an attempt take is lost from the validity before the lock is
		// granted.
		s.firstTTL = max(s.ttl, c.ttlFor(s.minHold+2*c.config.stepTimeout()))
	}
	return nil
}

// ttlFor returns the TTL that leaves a validity of d, or the longest TTL there is.
func (c *Client) ttlFor(d time.Duration) time.Duration {
	ttl := (d+2*time.Millisecond)*100/99 + time.Millisecond
	return min(ttl.Truncate(time.Millisecond), c.config.MaxTTL)
}

// refuseShared returns an error if the call cannot be a reader's.
func (c *call) refuseShared(wait bool) error {
	_, store := c.client.store()
	switch {
	case store:
		return errNoShared
	case c.settings.also != nil:
		return invalid("WithShared goes with one name: lock the names one by one, always in the same order, or leave out WithAlso")
	case c.settings.leading:
		return invalid("WithShared: only one client leads at a time: leave it out of Campaign")
	case wait && !c.settings.queue:
		return invalid("WithoutQueue: a reader would overtake the writers that wait: leave it out, or use TryLock")
	}
	return nil
}
