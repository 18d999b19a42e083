package redistest

import (
	"context"
	"fmt"
	"maps"
)

// Stats are a proxy's counts since it was started. Commands are counted by
// their name in upper case; raw streams (TLS, replication) have none. What is
// passed on is counted just before: whoever has received a reply finds it and
// its command counted.
type Stats struct {
	Accepted  int // connections taken from clients
	Open      int // of these, the ones that have not ended
	Connected int // open connections to servers

	Seen      map[string]int // commands read from clients
	Forwarded map[string]int // of these, the ones passed on to a server

	RequestBytes, ReplyBytes int64 // passed on to servers, to clients
	DiscardedBytes           int64 // thrown away by BlackHole, DropReplies and DropReply
}

// Stats returns the present counts.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.snapshot()
}

// Commands returns how many commands clients have sent, by name in upper case,
// whatever became of them.
func (p *Proxy) Commands() map[string]int { return p.Stats().Seen }

// Await blocks until enough reports true of the counts, or ctx is done. It is
// asked anew whenever a count has changed, under no lock.
func (p *Proxy) Await(ctx context.Context, enough func(Stats) bool) error {
	for {
		p.mu.Lock()
		s := p.snapshot()
		if p.counted == nil {
			p.counted = make(chan struct{})
		}
		counted := p.counted
		p.mu.Unlock()
		if enough(s) {
			return nil
		}
		select {
		case <-counted:
		case <-ctx.Done():
			return fmt.Errorf("redistest: waiting for the proxy's counts, now %+v: %w", s, context.Cause(ctx))
		}
	}
}

// AwaitCommand blocks until clients have sent n commands of that name (upper
// case) in all, or ctx is done.
func (p *Proxy) AwaitCommand(ctx context.Context, name string, n int) error {
	return p.Await(ctx, func(s Stats) bool { return s.Seen[name] >= n })
}

// count changes the counts and wakes those who wait for them.
func (p *Proxy) count(add func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	add(&p.stats)
	p.recounted()
}

// recounted wakes those who wait for a count; the caller holds p.mu.
func (p *Proxy) recounted() {
	if p.counted != nil {
		close(p.counted)
		p.counted = nil
	}
}

// snapshot copies the counts; the caller holds p.mu.
func (p *Proxy) snapshot() Stats {
	s := p.stats
	s.Open = len(p.links)
	s.Seen, s.Forwarded = maps.Clone(s.Seen), maps.Clone(s.Forwarded)
	return s
}
