package enginetest

import (
	"strings"
	"testing"

	"github.com/redlatch/redlatch/doctor"
)

// Says reports whether a problem of a report, or its remedy, has the text.
func Says(report doctor.Ensemble, unusable bool, member, text string) bool {
	for _, p := range report.Problems {
		if p.Unusable == unusable && p.Member == member && strings.Contains(p.Text+": "+p.Remedy, text) {
			return true
		}
	}
	return false
}

// AwaitWell waits until look finds no problem, and expects three servers of which one leads.
func AwaitWell(t *testing.T, look func() doctor.Ensemble) {
	t.Helper()
	var report doctor.Ensemble
	Await(t, "all is well", func() bool {
		report = look()
		return report.Quorum && len(report.Problems) == 0
	})
	roles := make(map[string]int)
	for _, m := range report.Members {
		roles[m.Role]++
		if m.Err != nil || !strings.HasPrefix(m.Version, "3.") {
			t.Errorf("%+v", m)
		}
	}
	if roles["leader"] != 1 || roles["follower"] != 2 {
		t.Errorf("%v", roles)
	}
}
