package redlatch

import (
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// longestTick bounds how late a lock is found lost after the machine slept: the
// timer that would say so slept with it.
const longestTick = 250 * time.Millisecond

// ticker is a lock whose alarm rings.
type ticker Lock

func (t *ticker) Ring() { (*Lock)(t).tick() }

// tick looks after a held lock: it finds it lost, has it renewed, and sets
// itself to be called again.
func (l *Lock) tick() {
	if l.client.enter() != nil {
		return // Close releases it
	}
	defer l.client.calls.Done()
	lost := l.Err() != nil
	now := l.client.clock.Now()
	switch {
	case l.lease.Kept():
		l.tickKept(now)
		return
	case lost:
		l.afterLoss(now)
		return
	}
	l.mu.Lock()
	renew := l.call.settings.renewal && !l.renewing && now.Reached(l.renewal) && now.Since(l.lease.Since()) < l.call.settings.maxHold
	l.renewing = l.renewing || renew
	next := l.nextTick(now)
	l.mu.Unlock()
	l.ring(next)
	if renew {
		l.renew()
	}
}

// nextTick is the time from now to what happens next. The caller holds l.mu.
func (l *Lock) nextTick(now clock.Instant) time.Duration {
	d := min(now.Until(l.lostAt()), longestTick)
	if l.call.settings.renewal && !l.renewing && now.Since(l.lease.Since()) < l.call.settings.maxHold {
		d = min(d, now.Until(l.renewal))
	}
	return max(d, time.Millisecond)
}

// renew makes one round of extension, on the goroutine of a tick.
func (l *Lock) renew() {
	err := l.extend(l.client.life, l.call.settings.ttl)
	now := l.client.clock.Now()
	next := l.client.jitter(l.call.settings.ttl / 3)
	if err != nil {
		next = l.client.jitter(l.call.settings.ttl / 12)
		l.client.config.Logger.Debug("renewal failed", "name", l.call.name, "error", err)
	}
	l.mu.Lock()
	l.renewing, l.failing = false, err != nil
	l.renewal = now.Add(next)
	tick := l.nextTick(now)
	l.mu.Unlock()
	l.ring(tick)
}

// afterLoss releases what is left of a lost lock once its validity is over.
func (l *Lock) afterLoss(now clock.Instant) {
	if left := now.Until(l.lease.Until()); left > 0 {
		l.ring(left)
		return
	}
	l.release()
}
