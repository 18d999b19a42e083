package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/script"
)

// errMoved says that a reset met another run, record or quarantine than was looked at.
var errMoved = errors.New("it restarted, or others changed what it has recorded, while it was being reset: try again")

// Reset makes the node belong to the deployment as this client describes it, whatever it belonged
// to before, and begins its quarantine: locks that were given away under the former description may
// still be held. Clients of that description are refused from then on.
//
// The new description is recorded at once. If none were recorded, the node would belong to the
// first client that comes, which may be a former one.
func (n *Node) Reset(ctx context.Context) (err error) {
	if n.isSlot() {
		return errNoReset
	}
	for range maxLooks {
		if err = n.reset(ctx); !errors.Is(err, errMoved) {
			break
		}
	}
	return err
}

// reset is Reset on the strength of one look. What others have recorded since then is not
// overwritten: locks of a longer MaxTTL may have been given away under it.
func (n *Node) reset(ctx context.Context) error {
	seen, _, err := n.look(ctx, true, false)
	if err != nil {
		return err
	}
	a := n.options.Agreement
	others, later := n.othersRecords(ctx)
	if errors.Is(seen.unreadable, admission.ErrLater) {
		later = seen.unreadable
	}
	if later != nil { // nobody here can say for how long its clients hold their locks
		return fmt.Errorf("%w: %w", admission.ErrUnfit, later)
	}
	if ctx.Err() != nil { // this node has answered
		return fmt.Errorf("the other nodes were still being asked for what they have recorded: %w", context.Cause(ctx))
	}
	longest, former := a.MaxTTL, time.Duration(0)
	for _, r := range append(others, seen.record) {
		if r != nil {
			longest = max(longest, r.Agreement(a.Deployment).MaxTTL)
			former = max(former, r.LongestTTL())
		}
	}
	if seen.record == nil { // else what is left of an earlier change's quarantine is noted here
		longest = max(longest, former)
	}
	record := a.Record(seen.server())
	if former > a.MaxTTL {
		record.FormerMS = former.Milliseconds()
	}
	note := admission.NewNote(seen.server(), seen.now, admission.Quarantine(longest)).After(seen.noteText)
	reply, err := eval(ctx, n.conn, script.Quarantine.Text, n.deploymentKeys(),
		[]string{seen.run(), seen.info["master_replid"], note.Text(), seen.recordText, seen.noteText, record.Text()})
	switch {
	case err != nil:
		return err
	case reply.Int != 1:
		return errMoved
	}
	n.link.forget()
	n.admission.forget()
	n.options.Logger.Info("node reset", "node", n.Name(), "run_id", seen.run(), "deployment", a.Deployment)
	return nil
}

// othersRecords returns the other nodes' records, as far as they can be read: this node, if it has
// lost its own, may have had the same, and locks of that MaxTTL. later says that a later version wrote one of them.
func (n *Node) othersRecords(ctx context.Context) (records []*admission.Record, later error) {
	ctx, cancel := context.WithTimeout(ctx, n.options.ConnectTimeout/2)
	defer cancel()
	readers := n.options.Census.readers()
	records, errs := make([]*admission.Record, len(readers)), make([]error, len(readers))
	var all sync.WaitGroup
	for i, record := range readers {
		if i != n.options.Index {
			all.Go(func() { records[i], errs[i] = record(ctx) })
		}
	}
	all.Wait()
	for i, err := range errs {
		if errors.Is(err, admission.ErrLater) {
			later = laterOn(n.options.Census.names[i], err)
		}
	}
	return records, later
}

// forget drops what was concluded from the former record, and a failure that would otherwise be
// returned for a while.
func (l *link) forget() {
	l.distrust()
	l.mu.Lock()
	l.failure = nil
	l.mu.Unlock()
}

func (a *inspection) forget() {
	a.mu.Lock()
	a.outcome = nil
	a.mu.Unlock()
}
