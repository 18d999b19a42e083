//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Run runs the demo, and blocks until all processes that it started are gone.
// That takes Options.For and a few seconds more. If ctx is done earlier, Run ends the race in
// order and returns the result so far.
//
// The error says why there is no result. It wraps redlatch.ErrInvalid for options that
// cannot work, and is the cause of ctx if ctx was done before the race began.
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
	defer client.Close() // the client holds no lock any more
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

// causeOr returns the cause of ctx if ctx is done, since that ended the call, else err.
func causeOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
