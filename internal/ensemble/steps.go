package ensemble

import (
	"context"

	"github.com/redlatch/redlatch/internal/vote"
)

// OneVote has the steps that are asked of one of several nodes only.
type OneVote struct{}

// Confirm implements quorum.Voter.
func (OneVote) Confirm(context.Context, vote.Confirm) vote.Answer {
	return vote.Answer{Verdict: vote.NotOurs}
}

// Repair implements quorum.Voter. A lease that has ended is not made again.
func (OneVote) Repair(context.Context, vote.Extend) vote.Answer {
	return vote.Answer{Verdict: vote.NotOurs}
}

// NotAsked is the answer a to what came before anything was asked for: nothing can have been executed.
func NotAsked(a vote.Answer) vote.Answer {
	if a.Verdict == vote.Unknown {
		a.Verdict = vote.Unavailable
	}
	return a
}

// Removal is how the lease of a holder id is ended.
type Removal struct {
	// Run runs f in the background, unless the client is closed; Rest is the pause before it is tried
	// again, and reports false when the client's life has ended.
	Run  func(f func()) bool
	Rest func() bool
	// Once asks for it, and waits for the answer. doubtful: it was sent before.
	Once func(doubtful bool) vote.Answer
	// Ended is called when it is known that the lock is not held under the id. Closed is the
	// error where the client is.
	Ended  func()
	Closed error
}

// Start begins, and goes on in the background until it is known that the lock is not held under the
// id. It returns where the answer will be.
func (r Removal) Start() <-chan vote.Answer {
	out := make(chan vote.Answer, 1)
	started := r.Run(func() {
		doubtful := false
		for {
			a := r.Once(doubtful)
			if a.Verdict != vote.Unknown && a.Verdict != vote.NotSent && a.Verdict != vote.Unavailable {
				r.Ended()
				out <- a
				return
			}
			doubtful = doubtful || a.Verdict == vote.Unknown
			if !r.Rest() {
				out <- a
				return
			}
		}
	})
	if !started {
		out <- vote.Answer{Verdict: vote.NotSent, Err: r.Closed}
	}
	return out
}
