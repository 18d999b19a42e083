package node

import (
	"testing"

	"github.com/redlatch/redlatch/internal/admission"
)

// A master is judged by the slot that would keep a name waiting for the longest.
func TestNewestSlot(t *testing.T) {
	held := admission.Slots{{First: 10, Last: 20}, {First: 30, Last: 40}}
	for _, c := range []struct {
		recorded admission.Slots
		want     uint16
	}{
		{nil, 10},
		{admission.Slots{{First: 10, Last: 20, Since: 5}, {First: 30, Last: 40, Since: 5}}, 10},
		{admission.Slots{{First: 10, Last: 20, Since: 5}, {First: 30, Last: 35, Since: 5}, {First: 36, Last: 40, Since: 7}}, 36},
		{admission.Slots{{First: 10, Last: 20, Since: 5}, {First: 30, Last: 32, Since: 9}, {First: 34, Last: 40, Since: 7}}, 33},
	} {
		m := &MasterExamination{Examination: new(Examination), Slots: held}
		if c.recorded != nil {
			m.evidence.record = &admission.Record{Slots: c.recorded}
		}
		if got := m.newest(); got != c.want {
			t.Errorf("recorded %v: %d, want %d", c.recorded, got, c.want)
		}
	}
}
