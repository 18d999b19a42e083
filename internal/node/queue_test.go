package node

import (
	"testing"

	"github.com/redlatch/redlatch/internal/vote"
)

// Names and ids may have spaces; what is no call is none.
func TestParseWakeUp(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]vote.WakeUp{
		"p/1 0 a record":           {Waiter: "p/1", Key: "a record"},
		"p/1 7 an id 1a record":    {Waiter: "p/1", From: "an id 1", Key: "a record"},
		"p/1 3 abc":                {Waiter: "p/1", From: "abc"},
		"":                         {},
		"p/1 a record of long ago": {},
		"p/1 9 short":              {},
		"p/1 -1 x":                 {},
	} {
		got, ok := parseWakeUp(message)
		if got != want || ok != (want.Waiter != "") {
			t.Errorf("%q: %+v, %t", message, got, ok)
		}
	}
}
