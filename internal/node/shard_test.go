package node

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
)

// What CLUSTER NODES of Redis 7.0 and Valkey 8.0 says, shortened.
const clusterNodes = `07c37df 127.0.0.1:30004@31004,hostname4 slave e7d1eec 0 1426238317239 4 connected
67ed2db 127.0.0.1:30002@31002,hostname2 master - 0 1426238316232 2 connected 5461-10921 10923
292f8b3 127.0.0.1:30003@31003,hostname3 master,fail - 0 1426238318243 3 disconnected 10924-16383
6ec2392 127.0.0.1:30005@31005,hostname5 master - 0 1426238316232 5 connected
e7d1eec 127.0.0.1:30001@31001,hostname1 myself,master - 0 0 12 connected 0-5460 10922 [93-<-292f8b3] [77->-e7d1eec]
`

func TestParseMasters(t *testing.T) {
	t.Parallel()
	masters, myself, err := parseMasters(clusterNodes)
	if err != nil || len(masters) != 3 || myself != "e7d1eec" {
		t.Fatalf("%+v, %v", masters, err)
	}
	for i, want := range []master{
		{"67ed2db", 2, admission.Slots{{First: 5461, Last: 10921}, {First: 10923, Last: 10923}}},
		{"292f8b3", 3, admission.Slots{{First: 10924, Last: 16383}}},
		{"e7d1eec", 12, admission.Slots{{First: 0, Last: 5460}, {First: 10922, Last: 10922}}},
	} {
		if masters[i].id != want.id || masters[i].epoch != want.epoch || !slices.Equal(masters[i].held, want.held) {
			t.Errorf("%+v, want %+v", masters[i], want)
		}
	}
	s, err := newShard(10922, masters)
	if err != nil || s.master.epoch != 12 || len(s.others) != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := newShard(7000, masters[1:]); !errors.Is(err, driver.ErrNotSent) {
		t.Errorf("a slot that nobody has: %v", err)
	}
	for _, bad := range []string{"0-16384", "5-4", "x", "-1", "1-"} {
		if _, _, err := parseMasters(strings.Replace(clusterNodes, "0-5460", bad, 1)); err == nil {
			t.Errorf("%q is taken for slots", bad)
		}
	}
	if _, _, err := parseMasters(strings.Replace(clusterNodes, " 12 ", " twelve ", 1)); err == nil {
		t.Error("an epoch that is none is taken for one")
	}
}
