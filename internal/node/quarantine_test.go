package node

import (
	"testing"
	"time"
)

// A Cluster's master that gets slots one after the other keeps each out until an end of its own. Callers look at
// these slots in turns. What is logged is each later end, once.
func TestQuarantineOfSeveralSlots(t *testing.T) {
	t.Parallel()
	q, start := new(quarantines), time.Now()
	news := 0
	for turn := range 100 {
		for slot := range 3 {
			until := start.Add(time.Minute + time.Duration(slot)*2*sameEnd + time.Duration(turn)*time.Millisecond)
			if q.begin("run", until) {
				q.told("run")
				news++
			}
		}
	}
	if news != 3 {
		t.Errorf("told %d times of 3 ends", news)
	}
	if !q.last() {
		t.Error("it is not known to be kept out")
	}
	if !q.end("run") || q.end("run") {
		t.Error("its vote is not told once")
	}
}
