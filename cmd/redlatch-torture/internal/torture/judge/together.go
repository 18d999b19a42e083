package judge

import (
	"slices"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
)

// Together counts the acquisitions of other primitives than a lock of one name, and how many holders there were
// at a time. A run of readers proves little if no two of them ever held a lock together.
type Together struct {
	Sets        int `json:"sets"`         // acquisitions of several names
	Readers     int `json:"readers"`      // acquisitions by readers
	MostReaders int `json:"most_readers"` // of one name at one time
	Permits     int `json:"permits"`      // acquisitions of a slot
	MostPermits int `json:"most_permits"` // held at one time, of all names
}

// together counts what Together has.
func together(h *history.History) Together {
	var t Together
	readers := map[string][]history.Hold{}
	var permits []history.Hold
	last := history.Hold{}
	for _, hold := range h.Holds { // the holds of one set follow each other
		switch {
		case hold.Further && !last.Further:
			t.Sets++
		case hold.Shared:
			t.Readers++
			readers[hold.Name] = append(readers[hold.Name], hold)
		case slices.Contains(h.Slots, hold.Name):
			t.Permits++
			permits = append(permits, hold)
		}
		last = hold
	}
	for _, holds := range readers {
		t.MostReaders = max(t.MostReaders, most(holds))
	}
	t.MostPermits = most(permits)
	return t
}

// most returns the largest number of holds at one time. holds is sorted by From.
func most(holds []history.Hold) (n int) {
	var running []history.Hold
	for _, hold := range holds {
		running = append(slices.DeleteFunc(running, func(r history.Hold) bool { return r.End <= hold.From }), hold)
		n = max(n, len(running))
	}
	return n
}
