package node

import (
	"testing"

	"github.com/redlatch/redlatch/internal/ballot"
)

// Names and ids may have spaces; what is no call is none.
func TestParseCall(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]ballot.Call{
		"p/1 - 0 0 a record":              {Waiter: "p/1", Record: "a record"},
		"p/1 - 7 0 an id 1a record":       {Waiter: "p/1", From: "an id 1", Record: "a record"},
		"p/1 - 3 0 abc":                   {Waiter: "p/1", From: "abc"},
		"p/1 77 0 5 bid 1a record":        {Waiter: "p/1", Bid: "bid 1", Record: "a record", Token: 77},
		"p/1 77+ 4 5 theybid 1a record":   {Waiter: "p/1", From: "they", Bid: "bid 1", Record: "a record", Token: 77, Waiting: true},
		"":                                {},
		"p/1 - a record of long ago":      {},
		"p/1 - 5 a record of lately":      {},
		"p/1 - 9 0 short":                 {},
		"p/1 - 3 3 short":                 {},
		"p/1 - -1 0 x":                    {},
		"p/1 - 18446744073709551615 1 ab": {},
		"p/1 many 0 3 bid record":         {},
	} {
		got, ok := parseCall(message)
		if got != want || ok != (want.Waiter != "") {
			t.Errorf("%q: %+v, %t", message, got, ok)
		}
	}
}
