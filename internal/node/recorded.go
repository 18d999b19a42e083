package node

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
)

// Record is what a node has recorded of its deployment, and what its vote is worth there.
type Record struct {
	admission.Agreement
	// Void is why the word that the node is durable is not believed, "" where it is believed.
	Void string
	// RunID is the run that was admitted, or that is kept out until it is.
	RunID string
	// Agrees: the client has just these settings.
	Agrees bool
	// Status, Reason and Left say what the node's vote is worth to clients that agree with the
	// record.
	Status Status
	Reason error
	Left   time.Duration
}

// JudgeRecord says what the node's vote is worth to clients that agree with its record. It is
// called after all nodes of the census were looked at. It returns nil where no record could be
// read, and changes nothing on the node.
func (n *Node) JudgeRecord(ctx context.Context, x *Examination) *Record {
	if x.Recorded == nil {
		return nil
	}
	r := &Record{
		Agreement: *x.Recorded, Void: x.Void, RunID: x.evidence.record.Run, Agrees: x.Recorded.ID() == n.options.Agreement.ID(),
	}
	if err := errors.Join(x.Err, x.refused, x.evidence.unreadable); err != nil {
		r.Status, r.Reason = StatusUnclear, err
		return r
	}
	r.Status, r.Left, r.Reason = n.statusFor(ctx, r.Agreement, &x.evidence)
	return r
}

// Unreadable returns why a key of the deployment was not written by a client, nil where all were.
// Only a reset mends that, or an update of this client where a later version wrote it.
func (x *Examination) Unreadable() error { return x.evidence.unreadable }

// Replicas returns how many replicas are attached to the node.
func (x *Examination) Replicas() int { return int(x.evidence.info.number("connected_slaves")) }
