package node

import "github.com/redlatch/redlatch/internal/admission"

// word is an operator's, that a node has forgotten no lock in its present run. It is given for what the node had when it was first
// looked at. The node may be looked at again, since others may change what it has recorded meanwhile.
type word struct {
	history, flushes string
	recorded         bool // the node had a record
}

// errNotVouched says that the operator's word was for another run, or for keys that are gone.
var errNotVouched = &admission.WaitError{Reason: "it restarted, was a replica or lost its data while it was being admitted, and nobody has vouched for that: admit it again, if no lock is held that it may lack"}

// covers reports whether the word is for what is seen. The first look is what it is for.
func (w *word) covers(seen *evidence) bool {
	if w.history == "" {
		w.history, w.flushes = seen.history(), seen.info.flushes()
	}
	gone := w.recorded && seen.recordText == ""
	w.recorded = seen.recordText != ""
	// rule: word-for-what-was-seen
	return w.history == seen.history() && w.flushes == seen.info.flushes() && !gone
}
