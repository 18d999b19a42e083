package node

import "testing"

// A Cluster's master lost its record after the first look, and another client writes one before the third: what the master lost
// with the former one, nobody has vouched for.
func TestWordIsVoidAfterALoss(t *testing.T) {
	look := func(record string) *evidence { return &evidence{shard: new(shard), recordText: record} }
	w := new(word)
	for i, c := range []struct {
		record string
		covers bool
	}{{"a record", true}, {"the same, for further slots", true}, {"", false}, {"", false}, {"another client's", false}} {
		if got := w.covers(look(c.record)); got != c.covers {
			t.Errorf("look %d, at the record %q: covered %t", i+1, c.record, got)
		}
	}
}
