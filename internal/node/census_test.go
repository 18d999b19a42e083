package node

import (
	"errors"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/admission"
)

// Clusters are told apart by the servers that answer for their slots just now.
func TestCensusOfClusters(t *testing.T) {
	t.Parallel()
	c := NewCensus([]string{"a", "b", "c"})
	c.report(0, "cluster a")
	c.report(1, "cluster b")
	c.report(2, "r9")
	want := func(words string) {
		t.Helper()
		err := c.Err()
		if words == "" {
			if err != nil {
				t.Error(err)
			}
			return
		}
		if d, ok := errors.AsType[*DuplicateError](err); !ok || !d.Cluster || !strings.Contains(err.Error(), words) || !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("%v, want %q", err, words)
		}
	}
	c.reportSlot(0, "s1", "r1")
	c.reportSlot(0, "s2", "r2")
	c.reportSlot(1, "s1", "r3")
	c.reportSlot(1, "s3", "")
	want("")
	c.reportSlot(1, "s3", "r2") // which has another slot of a
	want("a and b are one Cluster")
	c.reportSlot(0, "s4", "r2")
	c.reportSlot(0, "s2", "r4")
	want("a and b are one Cluster") // r2 has s4 still
	c.reportSlot(0, "s4", "r4")
	want("")
	c.report(2, "r3")
	want("b and c are one Cluster")
	c.report(2, "r4")
	want("a and c are one Cluster")
}
