package quorum

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// Poll is one question to every node. It makes no Lease.
type Poll struct {
	// Ask puts the question to node i.
	Ask func(ctx context.Context, i int) vote.Answer
	// Enough reports whether the answers so far decide the poll; an answer that has not come yet is
	// Unknown without an error. If Enough is nil, all answers are waited for.
	Enough func(answers []vote.Answer) bool
	// Undo takes back what node i granted to a poll that is lost.
	Undo func(ctx context.Context, i int)
	// Of, if not empty, says which key and id the poll is about. One without an Undo begins when no
	// earlier one about the same may be undone any more: else what it is granted might be deleted.
	Of string
	// InOrder has each node asked when its steps for earlier polls about the same with an Undo are
	// over. One that such a poll did not wait for may still be on its way to the connection.
	InOrder bool
	// TTL, if not zero, is how long the nodes keep a key: a poll whose quorum comes after its
	// validity is over is lost.
	TTL time.Duration
	// Longest, if not zero, is how long after the start a quorum may come: with a later one the
	// poll is lost.
	Longest time.Duration
	// Patience is the time that a node has to answer, in steps' times.
	Patience int
}

// Put asks all nodes at once. It returns when the answers are enough or ctx is done, and reports
// whether a quorum granted. Nodes that have not answered by then finish in the background. What was
// granted to a lost poll is undone: before Put returns where the node has answered, in the
// background where it answers later. Nothing is undone where no answer says that there is something
// to undo.
func (e *Engine) Put(ctx context.Context, p Poll) (bool, []vote.Answer) {
	n := len(e.voters)
	settled := &settlement{poll: p, engine: e, left: n + 1, over: make(chan struct{})}
	var before []*settlement
	switch {
	case p.Of == "":
	case p.Undo != nil:
		for range n {
			settled.steps = append(settled.steps, make(chan struct{}))
		}
		e.unsettled.add(settled)
	case p.InOrder:
		before = e.unsettled.about(p.Of)
	case !e.unsettled.await(ctx, p.Of):
		return false, make([]vote.Answer, n)
	}
	defer settled.leave()
	start := e.clock.Now()
	round := new(roundContext)
	round.begin(e, start.Mono, time.Duration(p.Patience)*e.timeout)
	votes := make(chan stepAnswer, n)
	for i := range n {
		e.workers.run(func() {
			defer settled.leave()
			defer settled.passed(i)
			for _, earlier := range before {
				select {
				case <-earlier.steps[i]:
				case <-round.Done():
				}
			}
			a := p.Ask(round, i)
			if p.Undo != nil && (a.Verdict == vote.Granted || a.Verdict == vote.NotReplicated) {
				settled.granted(i)
			}
			votes <- stepAnswer{node: i, answer: a}
		})
	}
	decided := false
	defer func() {
		if !decided { // a method of ctx has panicked; ctx is not used again
			settled.lose(round)
		}
	}()
	answers := make([]vote.Answer, n)
	answered := 0
	for answered < n && ctx.Err() == nil && (p.Enough == nil || !p.Enough(answers)) {
		select {
		case v := <-votes:
			answered++
			answers[v.node] = v.answer
		case <-ctx.Done():
		}
	}
	if answered == n {
		round.unlimit() // otherwise it ends the steps that the decision did not wait for
	}
	decided = true
	now := e.clock.Now()
	late := p.TTL != 0 && now.Reached(start.Add(p.TTL-Drift(p.TTL))) || p.Longest != 0 && now.Reached(start.Add(p.Longest))
	if Count(answers, vote.Granted) >= Majority(n) && !late {
		settled.end()
		return true, answers
	}
	settled.lose(ctx)
	return false, answers
}

// settlement undoes what was granted to a lost poll, whether the grant or the loss became known
// first.
type settlement struct {
	poll   Poll
	engine *Engine

	// over is closed, once, when the poll will not be undone any more.
	over chan struct{}
	once sync.Once
	// steps are closed, each when that node's step is over; nil where no other poll asks for that.
	steps []chan struct{}

	mu    sync.Mutex // guards what follows; nothing is called while it is held
	lost  bool
	nodes []int // that granted, before it was lost
	left  int   // how many may still undo it, or have it undone
}

// passed notes that the step on node i is over.
func (s *settlement) passed(i int) {
	if s.steps != nil {
		close(s.steps[i])
	}
}

// leave notes that one of those is done who may undo the poll.
func (s *settlement) leave() {
	s.mu.Lock()
	s.left--
	none := s.left == 0
	s.mu.Unlock()
	if none {
		s.end()
		s.engine.unsettled.remove(s)
	}
}

// end notes that the poll will not be undone any more.
func (s *settlement) end() { s.once.Do(func() { close(s.over) }) }

func (s *settlement) granted(i int) {
	s.mu.Lock()
	lost := s.lost
	if !lost {
		s.nodes = append(s.nodes, i)
	}
	s.mu.Unlock()
	if lost {
		s.undo(i)
	}
}

// lose undoes what was granted so far and waits for that, or for ctx.
func (s *settlement) lose(ctx context.Context) {
	s.mu.Lock()
	s.lost = true
	nodes := s.nodes
	s.left += len(nodes)
	s.mu.Unlock()
	undone := make(chan struct{}, len(nodes))
	for _, i := range nodes {
		s.engine.workers.run(func() {
			defer s.leave()
			s.undo(i)
			undone <- struct{}{}
		})
	}
	for range nodes {
		select {
		case <-undone:
		case <-ctx.Done():
			return
		}
	}
}

func (s *settlement) undo(i int) {
	round := new(roundContext)
	round.begin(s.engine, s.engine.clock.Mono(), releasePatience*s.engine.timeout)
	defer round.unlimit()
	s.poll.Undo(round, i)
}

// settlements are the polls that have steps under way or may still be undone, by what they are about.
type settlements struct {
	mu sync.Mutex // guards of
	of map[string][]*settlement
}

func (l *settlements) add(s *settlement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = make(map[string][]*settlement)
	}
	l.of[s.poll.Of] = append(l.of[s.poll.Of], s)
}

func (l *settlements) remove(s *settlement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := slices.DeleteFunc(l.of[s.poll.Of], func(other *settlement) bool { return other == s })
	if len(rest) == 0 {
		delete(l.of, s.poll.Of)
		return
	}
	l.of[s.poll.Of] = rest
}

// about returns what is there now.
func (l *settlements) about(of string) []*settlement {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.of[of])
}

// await waits until what is there now is over. It reports false if ctx ends before that.
func (l *settlements) await(ctx context.Context, of string) bool {
	for _, s := range l.about(of) {
		select {
		case <-s.over:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
