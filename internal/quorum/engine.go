// Package quorum puts requests to the vote: it asks all nodes at once, decides as soon as
// the outcome cannot change, and undoes what did not succeed. There is no Redis in it.
//
// Time. A validity runs from before the first send of the round that won it,
// on both of the machine's clocks (package clock), and ends drift early.
//
// Order. On each node, a holder's steps are given to the connection one after the other, so a
// release cannot overtake the step that it undoes. Where a step is still under way when the lock is
// given up, the same goroutine sends the release, after the step was answered or was told to wait
// no longer. Only an extension together with other leases is not waited for: it undoes no release.
package quorum

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/vote"
)

// Voter is one node. Each method waits for the node's answer or for ctx, and returns an answer in
// either case.
type Voter interface {
	Acquire(ctx context.Context, r vote.Acquire) vote.Answer
	Extend(ctx context.Context, r vote.Extend) vote.Answer
	Confirm(ctx context.Context, r vote.Confirm) vote.Answer
	Repair(ctx context.Context, r vote.Extend) vote.Answer
	Release(ctx context.Context, r vote.Release) vote.Answer
}

// Engine acquires locks over a fixed set of nodes. It is safe for concurrent
// use.
type Engine struct {
	voters  []Voter
	clock   *clock.Alarms
	timeout time.Duration

	workers *workers
	// transfers is nil where every lease ends by a release.
	transfers transferrer
	// onWaiting is the function that OnWaiting sets.
	onWaiting func(key string)

	// unsettled has the polls that have steps under way or may still be undone.
	unsettled    settlements
	secondRounds atomic.Uint64
}

// transferrer ends a lease in favour of the next holder, in place of a release. NewTransfers sets
// it.
type transferrer interface {
	// step returns the acquire step of an attempt to which a holder may have left its keys.
	step() stepFunc
	release(l *Lease) (answers []vote.Answer, ok bool)
	close()
}

// SecondRounds returns how many attempts found no quorum that agreed about the token, and had the
// token confirmed.
func (e *Engine) SecondRounds() uint64 { return e.secondRounds.Load() }

// New returns an engine over voters that waits no longer than timeout for one
// step on one node.
func New(voters []Voter, c clock.Clock, timeout time.Duration) *Engine {
	alarms := clock.NewAlarms(c)
	return &Engine{voters: voters, clock: alarms, timeout: timeout, workers: newWorkers(alarms), onWaiting: func(string) {}}
}

// OnWaiting sets the function that is called with each key for which others were seen to
// wait, when it was granted, refused or released. It must be set before the first round, and
// the function must not block.
func (e *Engine) OnWaiting(told func(key string)) { e.onWaiting = told }

// Close returns when no command is under way any more for a caller that has gone. No round may be
// started after Close was called.
func (e *Engine) Close() {
	if e.transfers != nil {
		e.transfers.close()
	}
	e.workers.dismiss()
}

// rule: drift

// Drift is what a validity loses to clocks that run at different rates and to
// the grain of the servers' expiry: 1 % of the TTL and 2 ms (Redis
// documentation, "Distributed locks with Redis").
func Drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Acquire makes one attempt for request, whose ID no earlier attempt has used. The holder
// request.From, if any, holds nothing any more and has left its keys to this attempt: the attempt
// replaces them, and those that it cannot replace are removed.
//
// The lease is nil when the attempt failed. What the attempt may have left is then being undone in
// the background, and there is one answer for each node: a node that had not answered when the
// attempt was decided has Unknown without an error. If one answer was a refusal, enough answers are
// known to tell whether refusals alone stand in the way. The attempt fails when ctx ends first. It
// also fails, whatever the answers are, when it was decided after the end of its validity, or
// vote.LongestAttempt after its start or later.
func (e *Engine) Acquire(ctx context.Context, request vote.Acquire) (*Lease, []vote.Answer) {
	// rule: validity-from-send
	start := e.clock.Now()
	step := (*keys).acquireStep
	if request.From != "" && e.transfers != nil {
		step = e.transfers.step()
	}
	return newKeys(e, request, start).acquire(ctx, start, step)
}

// acquire makes the attempt, whose validity runs from start, by running step for each node.
func (k *keys) acquire(ctx context.Context, start clock.Instant, step stepFunc) (lease *Lease, answers []vote.Answer) {
	e := k.engine
	k.until = start.Add(k.request.TTL - Drift(k.request.TTL))
	t := newTally(len(e.voters))
	defer func() {
		if t.count(pending, confirming) == 0 {
			k.round.unlimit() // otherwise its limit ends the steps that the decision did not wait for
		}
		// rule: failure-undone
		if lease == nil { // also where a method of ctx has panicked
			k.giveUp()
		}
	}()

	for i := range k.nodes {
		k.nodes[i].busy = true
	}
	var votes chan stepAnswer
	if len(e.voters) == 1 {
		// There is no other node to hear: the caller's own goroutine waits for this one, whose
		// answer decides. When ctx ends, so does the step.
		defer context.AfterFunc(ctx, k.round.end)()
		t.acquired(0, step(k, &k.round, 0))
		if ctx.Err() != nil {
			return nil, k.answers() // the step may have waited for the node all the same
		}
	} else {
		votes = k.ask(step)
	}

	var patience <-chan struct{} // nil until nodes are split; closed when they are no longer waited for
	for !t.decided() {
		select {
		case v := <-votes:
			if v.confirm {
				t.confirmed(v.node, v.answer)
				break
			}
			t.acquired(v.node, v.answer)
			if k.yields(v.answer) {
				return nil, k.answers()
			}
		case <-patience:
			t.fix()
			patience = nil
		case <-ctx.Done():
			return nil, k.answers()
		}
		if patience == nil && t.split() {
			patience = e.patience(start)
		}
		k.confirm(t, votes, start)
	}
	if k.request.Shared && !k.agreed(ctx, t, votes, start) {
		return nil, k.answers()
	}
	// The time is read after the last answer that was used.
	now := e.clock.Now()
	// rule: validity-judged-last
	// rule: longest-attempt
	if !t.held() || now.Reached(k.until) || now.Reached(start.Add(vote.LongestAttempt)) {
		return nil, k.answers()
	}
	return k.win(t.token, now), nil
}

// stepFunc runs the acquire step of k on node i, within ctx.
type stepFunc func(k *keys, ctx context.Context, i int) vote.Answer

// stepAnswer is a node's answer to a step, which is the confirm step if confirm is set.
type stepAnswer struct {
	node    int
	confirm bool
	answer  vote.Answer
}

// ask runs step for each node and returns the channel on which the answers come. The channel has
// room for all: a node is asked to confirm only after its first answer was received.
func (k *keys) ask(step stepFunc) chan stepAnswer {
	votes := make(chan stepAnswer, len(k.nodes))
	for i := range k.nodes {
		k.engine.workers.run(func() { votes <- stepAnswer{node: i, answer: step(k, &k.round, i)} })
	}
	return votes
}

// confirm asks the nodes that must now store the token of t to do so. The second round, which begins with
// the first of them, has its own time, which a grant that comes during it does not prolong; both rounds
// together have no more than two steps' time.
func (k *keys) confirm(t *tally, votes chan<- stepAnswer, start clock.Instant) {
	begun := t.second
	ask := t.confirmations()
	if t.second && !begun {
		e := k.engine
		e.secondRounds.Add(1)
		k.round.prolong(min(e.clock.Mono().Sub(start.Mono)+e.timeout, 2*e.timeout))
	}
	for _, i := range ask {
		request := vote.Confirm{
			Key: k.request.Key, With: k.request.With, ID: k.request.ID, Granted: t.nodes[i].granted, Token: t.token,
			Shared: k.request.Shared,
		}
		k.engine.workers.run(func() {
			votes <- stepAnswer{node: i, confirm: true, answer: k.confirmStep(i, request)}
		})
	}
}

// patience returns a channel that is closed when an attempt that began at start should no longer
// wait for nodes that are split to agree.
//
// Nodes are split where one of them granted a failed attempt just before, under a later clock
// reading; the answers on their way are likely to agree. Waiting for them as long again as the
// quorum took costs no more than the second round that it may save. The wait ends half way to the
// first round's limit at the latest, so that the two rounds take no longer than two steps.
func (e *Engine) patience(start clock.Instant) <-chan struct{} {
	over := make(chan struct{})
	took := e.clock.Now().Since(start)
	e.clock.AfterFunc(min(took, e.timeout/4, (e.timeout-took)/2), func() { close(over) })
	return over
}
