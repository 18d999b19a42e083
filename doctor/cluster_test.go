package doctor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
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

// What holds for a Cluster is the worst of its masters', whichever comes first: of what they have recorded, that with which
// the Config does not agree, or else that which is worth the least.
func TestWholeOfTheMasters(t *testing.T) {
	t.Parallel()
	master := func(run string, x node.Examination, first, last uint16, r node.Record) *node.MasterExamination {
		r.RunID = run
		return &node.MasterExamination{Address: run, Examination: &x, Slots: admission.Slots{{First: first, Last: last}}, Record: &r}
	}
	worse := master("worse", node.Examination{Evicting: true, Latency: 2 * time.Millisecond, Left: time.Minute}, 0, 99, node.Record{})
	better := master("better", node.Examination{Durable: true, Latency: time.Millisecond}, 200, 16383, node.Record{Agrees: true, Status: StatusUnfit})
	alike := master("alike", node.Examination{Durable: true}, 100, 149, node.Record{Agrees: true, Status: StatusWaiting})
	for _, masters := range [][]*node.MasterExamination{{worse, better}, {better, worse}} {
		r := reportCluster("c", "", &node.ClusterExamination{Masters: masters})
		if r.Durable || !r.Evicting || r.Latency != 2*time.Millisecond || r.Left != time.Minute || r.Cluster.Unserved != 100 || r.Recorded.RunID != "worse" {
			t.Errorf("%+v, recorded by %q", r, r.Recorded.RunID)
		}
	}
	for _, masters := range [][]*node.MasterExamination{{alike, better}, {better, alike}} {
		if r := reportCluster("c", "", &node.ClusterExamination{Masters: masters}); !r.Durable || r.Evicting || r.Recorded.RunID != "better" {
			t.Errorf("%+v, recorded by %q", r, r.Recorded.RunID)
		}
	}
}
