package node

import (
	"reflect"

	"github.com/redlatch/redlatch/internal/admission"
)

// word is an operator's, that a node has forgotten no lock in its present run. It is given for what the node had when it was first
// looked at. The node may be looked at again, since others may change it meanwhile; what they wrote may be of after all keys were lost.
type word struct {
	// first is what the first look found, with the mark that was written then.
	first *evidence
	// recorded: a Cluster's master had a record, which clients keep up to date.
	recorded bool
	// void: something else was seen since. Others may make the node look as before.
	void bool
}

// errNotVouched says that the operator's word was for another run, or for other keys.
var errNotVouched = &admission.WaitError{Reason: "it restarted, was a replica, lost its data or was changed by others while it was being admitted, and nobody has vouched for that: admit it again, if no lock is held that it may lack"}

// covers reports whether the word is for what is seen, and for all that was seen since the first look.
func (w *word) covers(seen *evidence) bool {
	if w.first == nil {
		w.first = seen
	}
	same := w.first.recordText == seen.recordText && w.first.noteText == seen.noteText
	if seen.shard != nil {
		same = reflect.DeepEqual(w.first.shard.master, seen.shard.master) && !(w.recorded && seen.recordText == "")
		w.recorded = seen.recordText != ""
	}
	// rule: word-for-what-was-seen
	w.void = w.void || !same || w.first.said() != seen.said() || w.first.history() != seen.history() || w.first.info.flushes() != seen.info.flushes()
	return !w.void
}
