//go:build linux

package torture

import (
	"testing"
	"time"
)

// No node has a fault for longer than a TTL before each look. The exception is setAll, which may take longer
// than the time between two looks.
func TestPlanLeavesQuiet(t *testing.T) {
	s := someSetting(3, 10*time.Minute)
	for _, it := range s.plan() {
		for look := lookEvery; look < s.length; look += lookEvery {
			if len(it.nodes) > 0 && it.kind != setAll && it.at < look && it.at+it.for_ > look-s.ttl {
				t.Errorf("%s at %v for %v disturbs the look at %v", it.kind, it.at, it.for_, look)
			}
		}
	}
}

// Where a worker wants all names at once, no worker has a fault for longer than a TTL before each look either.
func TestPlanLeavesWorkersQuiet(t *testing.T) {
	s := someSetting(3, 10*time.Minute)
	s.sets = true
	var faults int
	for _, it := range s.plan() {
		if len(it.workers) == 0 {
			continue
		}
		faults++
		for look := lookEvery; look < s.length; look += lookEvery {
			if it.at < look && it.at+it.for_ > look-s.ttl {
				t.Errorf("%s at %v for %v disturbs the look at %v", it.kind, it.at, it.for_, look)
			}
		}
	}
	if faults < 100 {
		t.Errorf("only %d faults of workers in %v", faults, s.length)
	}
}
