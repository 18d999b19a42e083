package doctor_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A client of any settings is told what a node has recorded and what its vote is worth to
// those that agree, and which keys of a lock are none of a client's.
func TestExamineTellsWhatIsRecorded(t *testing.T) {
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		s := redistest.New(t, redistest.Options{Binary: binary})
		c := locktest.WithQuarantine(s.URL())
		c.Deployment = "recorded"
		if r := locktest.Examine(t, c)[0]; r.Recorded != nil || r.Unreadable != nil {
			t.Errorf("a fresh node has %+v, %v", r.Recorded, r.Unreadable)
		}
		locktest.Vouch(t, locktest.Open(t, c), c.Nodes...)

		for _, other := range []struct {
			change func(*redlatch.Config)
			agrees bool
		}{
			{func(*redlatch.Config) {}, true},
			{func(c *redlatch.Config) { c.MaxTTL = time.Minute }, false},
			{func(c *redlatch.Config) { c.NoQuarantine = true }, false},
			{func(c *redlatch.Config) { c.Durable = true }, false},
			{func(c *redlatch.Config) { c.Nodes = []string{s.URL() + "#b"} }, false}, // the same server under another name
		} {
			changed := c
			other.change(&changed)
			report := locktest.Examine(t, changed)[0]
			r := report.Recorded
			if r == nil || r.MaxTTL != c.MaxTTL || r.NoQuarantine || r.Durable || r.Void != "" ||
				len(r.Nodes) != 1 || r.RunID != report.RunID || r.Status != doctor.StatusAdmitted || r.Agrees != other.agrees {
				t.Errorf("%+v: recorded %+v, want agrees %t", changed, r, other.agrees)
			}
		}

		locktest.Do(t, s, "SET", "redlatch:{x}:token:x", "9007199254740992")
		locktest.Do(t, s, "SET", "redlatch:{x}:heartbeats:x", "")
		locktest.Do(t, s, "SET", "redlatch:{x}:readers:x", "")
		keys := locktest.Examine(t, c, "x")[0].ForeignKeys
		if len(keys) != 3 || keys[0].Key != "redlatch:{x}:token:x" || !keys[0].Blocks || keys[1].Blocks || keys[2].Key != "redlatch:{x}:readers:x" || keys[2].Blocks ||
			!slices.ContainsFunc(keys, func(k doctor.ForeignKey) bool { return strings.Contains(k.Problem, "a string, not a sorted set") }) {
			t.Errorf("foreign keys: %+v", keys)
		}

		record := "redlatch:{recorded}:deployment"
		was := locktest.Value(t, s, record)
		locktest.Do(t, s, "DEL", record)
		locktest.Do(t, s, "RPUSH", record, "x")
		if r := locktest.Examine(t, c)[0]; r.Unreadable == nil || !strings.Contains(r.Unreadable.Error(), record) || r.Recorded != nil || r.Status != doctor.StatusUnfit {
			t.Errorf("a record of another type: %v, %+v, %v because of %v", r.Unreadable, r.Recorded, r.Status, r.Reason)
		}
		locktest.Do(t, s, "DEL", record)
		locktest.Do(t, s, "SET", record, was)

		admitted := "redlatch:{recorded}:admitted" // which the next client overwrites, whatever it is
		locktest.Do(t, s, "DEL", admitted)
		locktest.Do(t, s, "RPUSH", admitted, "x")
		if r := locktest.Examine(t, c)[0]; r.Unreadable != nil || r.Status != doctor.StatusAdmissible {
			t.Errorf("an admission of another type: %v, %v because of %v", r.Unreadable, r.Status, r.Reason)
		}
	})
}

// A lock's name may be that of another program's key, whose value is larger than a connection takes for
// a reply.
func TestExamineALargeForeignValue(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	locktest.Do(t, s, "SETRANGE", "x", strconv.Itoa(17<<20), "x")
	if r := locktest.Examine(t, locktest.WithQuarantine(s.URL()), "x")[0]; r.Err != nil || r.Missing != nil || r.Refusal != nil || r.ForeignKeys != nil {
		t.Errorf("%v; missing %q, refused %v, foreign %v", r.Err, r.Missing, r.Refusal, r.ForeignKeys)
	}
}
