//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Run runs the demo, and blocks until all processes that it started are gone:
// for Options.For and some seconds more at most, or until soon after ctx is
// done, which ends the run early, in order.
//
// The error says why there is no result: redlatch.ErrInvalid for options that
// cannot work, ctx's cause when it was done before the race began.
func Run(ctx context.Context, o Options) (result *Result, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redlatch-demo-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	record := record{dir: dir}
	if err := record.reset(); err != nil {
		return nil, err
	}

	ground, err := startNodes(ctx, o)
	if err != nil {
		remedy := ""
		if o.Engine == "" {
			remedy = " (with --embedded none need be installed)"
		}
		return nil, fmt.Errorf("cannot start the nodes%s: %w", remedy, causeOr(ctx, err))
	}
	defer func() { err = errors.Join(err, ground.close()) }()
	client, err := open(o.Engine, ground.urls(), "the demo itself")
	if err != nil {
		return nil, err
	}
	defer client.Close() // nothing is held any more
	if o.Engine == "" {
		if err := vouch(ctx, client, o.Nodes); err != nil {
			return nil, fmt.Errorf("cannot vouch for the new nodes: %w", causeOr(ctx, err))
		}
	}
	workers, err := startWorkers(o.Workers, assignment{Nodes: ground.urls(), Engine: o.Engine, Dir: dir, NoLock: o.NoLock})
	if err != nil {
		return nil, fmt.Errorf("cannot start the workers: %w", err)
	}

	s := newStage(o, ground, workers, client)
	s.announce()
	err = workers.ready(ctx)
	if err == nil {
		err = workers.race()
	}
	if err == nil {
		err = s.play(ctx)
	}
	ended := time.Now()
	deaths := workers.dismiss(s.note)
	s.view.clear()
	if err != nil {
		return nil, errors.Join(err, s.view.err)
	}

	result = &Result{
		options: o, kind: ground.kind, lasted: ended.Sub(s.start), tally: s.tally, stories: s.stories,
		standstill: s.tally.gaps.until(ended), deaths: deaths, Interrupted: ctx.Err() != nil,
	}
	result.count, _, result.countErr = record.read()
	s.view.say("%s", result.Summary())
	return result, s.view.err
}

// causeOr returns ctx's cause, if it is what ended a call, else err.
func causeOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
