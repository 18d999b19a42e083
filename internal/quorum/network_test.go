package quorum

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/vote"
)

// stepTime is the engine's time for one step on one node in these tests.
const stepTime = 50 * time.Millisecond

// bubbleClock is the time of a synctest bubble on both clocks. asleep is what
// the second clock counted while the machine was suspended.
type bubbleClock struct {
	start time.Time

	mu     sync.Mutex // guards asleep
	asleep time.Duration
}

func newBubbleClock() *bubbleClock { return &bubbleClock{start: time.Now()} }

func (c *bubbleClock) Now() clock.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return clock.Instant{Mono: now, Boot: now.Sub(c.start) + c.asleep}
}

// suspend has the machine sleep for d: its monotonic clock stands still.
func (c *bubbleClock) suspend(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asleep += d
}

func (c *bubbleClock) Mono() time.Time { return time.Now() }

func (c *bubbleClock) Wall() time.Time { return time.Now() }

func (c *bubbleClock) AfterFunc(d time.Duration, f func()) clock.Timer { return time.AfterFunc(d, f) }

// server is one simulated node behind one ordered connection. Its steps are
// those of the scripts.
type server struct {
	requests chan request
	served   sync.WaitGroup

	mu sync.Mutex // guards what follows
	// there and back are how long a request and its reply travel.
	there, back time.Duration
	// down: connecting is refused. lost: requests vanish. deaf: replies do.
	down, lost, deaf bool
	// frozen is closed to let a stopped server run on; nil while it runs.
	frozen chan struct{}
	// waiting: somebody is queued here, and woken up by who releases.
	waiting bool
	// refusal, if any, is what every step but a release is answered with.
	refusal *vote.Answer

	id      string
	expires time.Time // zero for never
	counter uint64
	steps   []string // what was executed, in order
}

type request struct {
	arrives time.Time
	execute func() vote.Answer
	answers chan vote.Answer
}

var errSimulated = errors.New("simulated")

// servers starts n nodes with a travel time of 1 ms each way. They end with the
// bubble's test.
func servers(t *testing.T, n int) []*server {
	t.Helper()
	nodes := make([]*server, n)
	for i := range nodes {
		nodes[i] = newServer()
	}
	t.Cleanup(func() {
		for _, s := range nodes {
			s.close()
		}
	})
	return nodes
}

func newServer() *server {
	s := &server{requests: make(chan request, 4096), there: time.Millisecond, back: time.Millisecond}
	s.served.Go(s.serve)
	return s
}

func (s *server) close() {
	close(s.requests)
	s.served.Wait()
}

func voters(nodes []*server) []Voter {
	v := make([]Voter, len(nodes))
	for i, s := range nodes {
		v[i] = s
	}
	return v
}

func (s *server) serve() {
	for r := range s.requests {
		time.Sleep(time.Until(r.arrives))
		s.mu.Lock()
		frozen := s.frozen
		s.mu.Unlock()
		if frozen != nil {
			<-frozen
		}
		s.mu.Lock()
		a := r.execute()
		back, deaf := s.back, s.deaf
		s.mu.Unlock()
		if !deaf {
			time.AfterFunc(back, func() { r.answers <- a })
		}
	}
}

// set changes the node.
func (s *server) set(change func(s *server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// freeze stops the node until the function it returns is called.
func (s *server) freeze() (thaw func()) {
	frozen := make(chan struct{})
	s.set(func(s *server) { s.frozen = frozen })
	return func() {
		s.set(func(s *server) { s.frozen = nil })
		close(frozen)
	}
}

// holder returns the holder id on the node, "" for none.
func (s *server) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.present()
}

// present expires the key, and returns it. The caller holds s.mu.
func (s *server) present() string {
	if !s.expires.IsZero() && !time.Now().Before(s.expires) {
		s.id, s.expires = "", time.Time{}
	}
	return s.id
}

// put makes id the key for ttl, 0 for ever.
func (s *server) put(id string, ttl time.Duration) {
	s.set(func(s *server) {
		s.id, s.expires = id, time.Time{}
		if ttl > 0 {
			s.expires = time.Now().Add(ttl)
		}
	})
}

// executed counts the steps of that kind.
func (s *server) executed(kind string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, step := range s.steps {
		if step == kind {
			n++
		}
	}
	return n
}

// order returns the steps executed so far.
func (s *server) order() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.steps)
}

// do carries one step to the node and its answer back.
func (s *server) do(ctx context.Context, kind string, execute func() vote.Answer) vote.Answer {
	s.mu.Lock()
	arrives, lost, down := time.Now().Add(s.there), s.lost, s.down
	s.mu.Unlock()
	if ctx.Err() != nil || down {
		return vote.Answer{Verdict: vote.NotSent, Err: errSimulated}
	}
	answers := make(chan vote.Answer, 1)
	if !lost {
		s.requests <- request{arrives: arrives, answers: answers, execute: func() vote.Answer {
			s.steps = append(s.steps, kind)
			if s.refusal != nil && kind != "release" {
				return *s.refusal
			}
			return execute()
		}}
	}
	select {
	case a := <-answers:
		return a
	case <-ctx.Done():
		return vote.Answer{Verdict: vote.Unknown, Err: errSimulated}
	}
}

// held is the answer when another has the key. The caller holds s.mu.
func (s *server) held() vote.Answer {
	left := time.Duration(-1)
	if !s.expires.IsZero() {
		left = time.Until(s.expires)
	}
	return vote.Answer{Verdict: vote.Held, Holder: s.id, Left: left}
}

func (s *server) grant(id string, ttl time.Duration) {
	s.id, s.expires = id, time.Now().Add(ttl)
}

func (s *server) Acquire(ctx context.Context, c vote.Acquire) vote.Answer {
	return s.do(ctx, "acquire", func() vote.Answer {
		handed := false
		switch id := s.present(); {
		case id == c.ID:
		case id == "", id == c.From:
			handed = id != ""
			s.grant(c.ID, c.TTL)
			s.counter = max(s.counter+1, c.Proposed) + uint64(c.More)
		default:
			return s.held()
		}
		return vote.Answer{Verdict: vote.Granted, Counter: s.counter, Transferred: handed, Waiting: s.waiting}
	})
}

func (s *server) Extend(ctx context.Context, c vote.Extend) vote.Answer {
	return s.do(ctx, "extend", func() vote.Answer {
		switch s.present() {
		case c.ID:
			if end := time.Now().Add(c.TTL); end.After(s.expires) {
				s.expires = end
			}
			s.counter = max(s.counter, c.Token)
			return vote.Answer{Verdict: vote.Granted, Counter: 1}
		case "":
			return vote.Answer{Verdict: vote.NotOurs}
		}
		return s.held()
	})
}

func (s *server) ExtendBatch(ctx context.Context, batch []vote.Extend) []vote.Answer {
	answers := make([]vote.Answer, len(batch))
	for i, c := range batch {
		answers[i] = s.Extend(ctx, c)
	}
	return answers
}

func (s *server) Confirm(ctx context.Context, c vote.Confirm) vote.Answer {
	return s.do(ctx, "confirm", func() vote.Answer {
		if s.present() != c.ID || s.counter != c.Granted {
			return vote.Answer{Verdict: vote.NotOurs}
		}
		s.counter = c.Token
		return vote.Answer{Verdict: vote.Granted, Counter: 1}
	})
}

func (s *server) Repair(ctx context.Context, c vote.Extend) vote.Answer {
	return s.do(ctx, "repair", func() vote.Answer {
		switch {
		case s.present() == c.ID:
		case s.id != "" || s.counter > c.Token:
			return vote.Answer{Verdict: vote.NotOurs}
		default:
			s.grant(c.ID, c.TTL)
			s.counter = c.Token
		}
		return vote.Answer{Verdict: vote.Granted, Counter: 1}
	})
}

func (s *server) Release(ctx context.Context, c vote.Release) vote.Answer {
	return s.do(ctx, "release", func() vote.Answer {
		switch s.present() {
		case c.ID:
			s.counter = max(s.counter, c.Token)
			s.id, s.expires = "", time.Time{}
			return vote.Answer{Verdict: vote.Granted, Counter: 1, Woken: s.waiting && c.Transfer}
		case "":
			return vote.Answer{Verdict: vote.NotOurs}
		}
		return s.held()
	})
}
