package doctor

import (
	"errors"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/node"
)

// A Cluster is as good as its worst master, and a master that was not reached has no user.
func TestWorstOfTheMasters(t *testing.T) {
	t.Parallel()
	fromBest := []Status{StatusAdmitted, StatusAdmissible, StatusWaiting, StatusUnclear, StatusUnfit}
	master := func(address string, s Status) *node.MasterExamination {
		x := &node.Examination{Status: s}
		if s > StatusAdmissible || s == StatusUnclear {
			x.Reason = errors.New("the reason of " + s.String())
		}
		if s == StatusUnclear {
			x.Err = x.Reason
		}
		return &node.MasterExamination{Examination: x, Address: address}
	}
	for i, one := range fromBest {
		for k, other := range fromBest {
			r := reportCluster("c", "me", &node.ClusterExamination{Masters: []*node.MasterExamination{master("a", one), master("b", other)}})
			worst, at := one, "a"
			if k > i {
				worst, at = other, "b"
			}
			if r.Status != worst {
				t.Errorf("%v and %v: %v", one, other, r.Status)
			}
			if hasReason := worst != StatusAdmitted && worst != StatusAdmissible; hasReason != (r.Reason != nil) ||
				hasReason && !strings.HasPrefix(r.Reason.Error(), at+": the reason of "+worst.String()) {
				t.Errorf("%v and %v: because of %v", one, other, r.Reason)
			}
			for n, s := range []Status{one, other} {
				if user := r.Cluster.Masters[n].User; (user == "") != (s == StatusUnclear) {
					t.Errorf("a master that is %v has the user %q", s, user)
				}
			}
		}
	}
}
