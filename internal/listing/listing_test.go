package listing

import (
	"testing"
)

// A lock comes before the permits of the same name, in each listing.
func TestOrder(t *testing.T) {
	t.Parallel()
	found := map[ID]Found{
		{Name: "pool"}:                         {Holder: "a"},
		{Name: "pool", Permit: true}:           {Holder: "b"},
		{Name: "pool", Permit: true, Slot: 10}: {Holder: "c"},
		{Name: "pool", Permit: true, Slot: 9}:  {Holder: "d"},
	}
	for range 100 { // a map has no order
		order := ""
		for _, lock := range Merge([]map[ID]Found{found}) {
			order += lock.Holder
		}
		if order != "abdc" {
			t.Fatalf("%q", order)
		}
	}
}
