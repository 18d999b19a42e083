package quorum

import (
	"context"
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
	start := e.clock.Now()
	n := len(e.voters)
	round := new(roundContext)
	round.begin(e, start.Mono, time.Duration(p.Patience)*e.timeout)
	votes := make(chan stepAnswer, n)
	settled := &settlement{poll: p, engine: e}
	for i := range n {
		e.workers.run(func() {
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

	mu    sync.Mutex // guards what follows; nothing is called while it is held
	lost  bool
	nodes []int // that granted, before it was lost
}

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
	s.mu.Unlock()
	undone := make(chan struct{}, len(nodes))
	for _, i := range nodes {
		s.engine.workers.run(func() {
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
