package node

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// errMoved says that a reset met another run than the one looked at.
var errMoved = errors.New("it restarted while it was being reset: try again")

// Reset has the node belong to the deployment as this client describes it,
// whatever it belonged to before, and begins its quarantine: locks that were
// given away under the former description may be held still. Clients of that
// description are refused from then on.
//
// The new description is recorded at once. With none recorded, the first client
// to come would have the node, which may be a former one.
func (n *Node) Reset(ctx context.Context) error {
	reply, err := eval(ctx, n.conn, script.Inspect.Text, n.deploymentKeys()[1:], nil)
	if err != nil {
		return err
	}
	longest := n.options.Deployment.MaxTTL
	if len(reply.Array) == 4 {
		former, err := parseRecord(reply.Array[1].Text)
		if err != nil {
			reply.Array[1].Text = "" // a record that nobody can read is to go, too
		} else if former != nil {
			longest = max(longest, time.Duration(former.MaxTTLMS)*time.Millisecond)
		}
	}
	e, err := gather(reply)
	if err != nil {
		return err
	}
	if e.info["role"] != "" && e.info["role"] != "master" {
		return ErrReplica
	}
	n.options.Census.report(n.options.Index, e.run())
	if err := n.options.Census.Err(); err != nil {
		return fmt.Errorf("%w: %w", errUnfit, err)
	}
	d := n.options.Deployment
	r := &record{Nodes: n.options.Census.members(), MaxTTLMS: d.MaxTTL.Milliseconds()}
	// A quarantine ends by the reader's MaxTTL: what the former one was longer is
	// added to its beginning.
	e.now += int64((longest - d.MaxTTL + time.Second - 1) / time.Second)
	keep := int64(2*(d.Quarantine()+longest)/time.Second) + 1
	reply, err = eval(ctx, n.conn, script.Reset.Text, n.deploymentKeys(),
		[]string{e.run(), r.text(), e.quarantineText(), strconv.FormatInt(keep, 10)})
	switch {
	case err != nil:
		return err
	case reply.Int != 1:
		return errMoved
	}
	n.link.forget()
	n.admission.forget()
	n.options.Logger.Info("node reset", "node", n.Name(), "run_id", e.run(), "deployment", d.Name)
	return nil
}

// forget drops what was concluded from the former record, a failure that would
// otherwise be told for a while included.
func (l *link) forget() {
	l.broken()
	l.mu.Lock()
	l.failed = nil
	l.mu.Unlock()
}

func (a *admission) forget() {
	a.mu.Lock()
	a.outcome = nil
	a.mu.Unlock()
}
