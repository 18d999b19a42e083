package redlatch

import (
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/internal/vote"
)

// ringer is a Lock as a clock.Ringer.
type ringer Lock

// Ring is called when the lock's alarm is due: it begins a renewal or has the end of the lock checked, and
// leaves to another goroutine what may block.
func (r *ringer) Ring() {
	l := (*Lock)(r)
	now := l.client.clock.Now()
	// rule: holder-knows
	if held, _ := l.lease.Held(); !held || now.Reached(l.lostAt(l.lease.Until())) {
		go l.checkEnd()
		return
	}
	l.mu.Lock()
	renew := l.renewable(now) && now.Reached(l.renewal)
	l.renewing = l.renewing || renew
	l.setNextAlarm(now)
	l.mu.Unlock()
	if !renew || l.client.enter() != nil { // Close releases it
		return
	}
	ttl := l.call.settings.ttl
	if renewer := l.call.renewer(); renewer != nil {
		renewer.Renew(l.lease, ttl, func(end quorum.Extension, votes []vote.Answer) {
			finish := func() {
				defer l.client.calls.Done()
				l.renewed(l.afterExtension(l.client.life, end, votes))
			}
			if l.call.observed == nil && end == quorum.Extended {
				finish()
				return
			}
			go finish() // the Observer and the log may be slow, and others wait that were renewed together with this lock
		})
		return
	}
	go func() {
		defer l.client.calls.Done()
		l.renewed(l.extend(l.client.life, ttl))
	}()
}

// checkEnd takes care of a lock that is held no more, or that seemed to be about to end.
func (l *Lock) checkEnd() {
	held, _ := l.lease.Held()
	why := l.Err() // which tells the holder, also where Close takes long to come to it
	if l.client.enter() != nil {
		return // Close releases it
	}
	defer l.client.calls.Done()
	now := l.client.clock.Now()
	switch { // a lock that was unlocked is left to whoever does that
	case l.lease.Kept():
		l.checkKept(now)
	case held && errors.Is(why, ErrLost): // just lost: lose has set the alarm again, for what is left of the keys
	case errors.Is(why, ErrLost):
		l.afterLoss(now)
	case why == nil: // an extension has come just before its end
		l.mu.Lock()
		l.setNextAlarm(now)
		l.mu.Unlock()
	}
}

// setNextAlarm makes the alarm ring for what happens next, unless the lock is over. It decides what that is
// and sets the alarm at once: the lock may be unlocked meanwhile, and kept. The caller holds l.mu.
func (l *Lock) setNextAlarm(now clock.Instant) {
	if !l.over {
		l.alarm.ResetSince(now.Mono, l.untilNext(now))
	}
}

// untilNext returns the time from now to what happens next. The caller holds l.mu.
func (l *Lock) untilNext(now clock.Instant) time.Duration {
	if l.lease.Kept() {
		return l.untilMinHoldEnd(now)
	}
	d := now.Until(l.lostAt(l.lease.Until()))
	if l.renewable(now) {
		d = min(d, now.Until(l.renewal))
	}
	return max(d, time.Millisecond)
}

// renewable reports whether a renewal may begin at now. The caller holds l.mu.
func (l *Lock) renewable(now clock.Instant) bool {
	return l.call.settings.renewal && !l.renewing && now.Since(l.lease.Since()) < l.call.settings.maxHold
}

// renewed notes how a renewal ended, and sets the time of the next.
func (l *Lock) renewed(err error) {
	now := l.client.clock.Now()
	next := l.renewalDelay(now)
	if err != nil {
		next = l.client.jitter(l.call.settings.renewEach() / 4)
		l.client.config.Logger.Debug("renewal failed", "name", l.call.name, "error", err)
	}
	l.mu.Lock()
	l.renewing = false
	switch {
	case errors.Is(err, errBusy), errors.Is(err, ErrMaxHold): // afterExtension has noted the latter
	default:
		l.failed = err
	}
	l.renewal = l.alignedRenewal(now, next)
	l.setNextAlarm(now)
	l.mu.Unlock()
}

// afterLoss releases what is left of a lost lock once its validity is over.
func (l *Lock) afterLoss(now clock.Instant) {
	if left := now.Until(l.lease.Until()); left > 0 {
		l.setAlarm(now, left)
		return
	}
	l.tidy(now, func() { _ = l.release() })
}

// renewalDelay returns the time from now to the renewal after a grant or a renewal: the usual time or, where
// the nodes took long to answer, half of what is left until the lock counts as lost.
func (l *Lock) renewalDelay(now clock.Instant) time.Duration {
	return l.client.jitter(max(0, min(l.call.settings.renewEach(), now.Until(l.lostAt(l.lease.Until()))/2)))
}

// alignedRenewal returns the time d after now, or up to a hundredth of the usual time between renewals
// earlier. Renewals that are due at about the same time are thereby made at once, and wake the
// process up once.
func (l *Lock) alignedRenewal(now clock.Instant, d time.Duration) clock.Instant {
	at := now.Add(d)
	return at.Add(-(at.Mono.Sub(l.client.opened) % (l.call.settings.renewEach() / 100)))
}

// sleepCheck bounds how late a lock is found lost after the machine slept, since the lock's alarm
// slept too.
const sleepCheck = 250 * time.Millisecond

// longestNoSleep is by how much the two clocks may differ without the machine having slept: they
// are read one after the other.
const longestNoSleep = 10 * time.Millisecond

// watchForSleep makes the client look after its held locks when the machine has slept, as long as
// there are any.
func (c *Client) watchForSleep() {
	now := c.clock.Now()
	c.mu.Lock()
	c.seen = now
	c.mu.Unlock()
	c.clock.AfterFunc(sleepCheck, c.checkSleep)
}

func (c *Client) checkSleep() {
	now := c.clock.Now()
	var wake []*Lock
	c.mu.Lock()
	slept := now.Boot - c.seen.Boot - now.Mono.Sub(c.seen.Mono)
	c.seen = now
	again := len(c.held) > 0
	c.watching = again
	if slept > longestNoSleep {
		for l := range c.held {
			wake = append(wake, l)
		}
	}
	c.mu.Unlock()
	for _, l := range wake {
		l.setAlarm(now, 0)
	}
	if again {
		c.clock.AfterFunc(sleepCheck, c.checkSleep)
	}
}
