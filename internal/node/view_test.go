package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hashslot"
)

func mastersOf(owners ...string) (masters []master) {
	for i, id := range owners {
		masters = append(masters, master{id: id, held: admission.Slots{{First: uint16(10 * i), Last: uint16(10*i + 9)}}})
	}
	return masters
}

// A master has a slot where more than half of all masters say so, and it has answered itself.
func TestOpinions(t *testing.T) {
	t.Parallel()
	before, after := mastersOf("a", "b", "c"), mastersOf("d", "b", "c")
	for _, c := range []struct {
		what string
		said map[string]opinion
		run  string
		want bool
	}{
		{"all", map[string]opinion{"a": {"run a", before}, "b": {"run b", before}, "c": {"run c", before}}, "run a", true},
		{"a majority", map[string]opinion{"a": {"run a", before}, "b": {"run b", before}}, "run a", true},
		{"a minority", map[string]opinion{"a": {"run a", before}}, "run a", false},
		{"a majority names another", map[string]opinion{"a": {"run a", before}, "b": {"run b", after}, "c": {"run c", after}}, "run a", false},
		{"one names another", map[string]opinion{"a": {"run a", before}, "b": {"run b", after}, "c": {"run c", before}}, "run a", true},
		{"it has not answered", map[string]opinion{"b": {"run b", before}, "c": {"run c", before}}, "run a", false},
		{"it has restarted since", map[string]opinion{"a": {"run a", before}, "b": {"run b", before}, "c": {"run c", before}}, "an earlier run", false},
		{"the new one", map[string]opinion{"d": {"run d", after}, "b": {"run b", after}}, "run d", true},
		{"half of four", map[string]opinion{"a": {"run a", mastersOf("a", "b", "c", "d")}, "b": {"run b", mastersOf("a", "b", "c", "d")}}, "run a", false},
	} {
		if got := (&opinions{of: c.said}).owner(5) == c.run; got != c.want {
			t.Errorf("%s: %t, want %t", c.what, got, c.want)
		}
	}
	if run := (&opinions{of: map[string]opinion{"a": {"run a", before}, "b": {"run b", before}}}).owner(77); run != "" {
		t.Errorf("a slot that nobody has is at %s", run)
	}
	if run := (*opinions)(nil).owner(5); run != "" {
		t.Errorf("nobody was asked, and it is at %s", run)
	}
}

// viewed is a view of three masters. Each has ten slots, and so is found by a tag of the last; the run of the
// first is given, and silent are those that do not answer.
type viewed struct {
	*view
	first  string
	silent map[string]bool
	asked  int
}

func newViewed(t *testing.T) *viewed {
	v := &viewed{first: "a", silent: make(map[string]bool)}
	v.view = &view{
		more: make(chan struct{}),
		start: func(f func(context.Context)) {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), viewLimit/2)
				defer cancel()
				f(ctx)
			}()
		},
		ask: func(ctx context.Context, tag string) (driver.Reply, error) {
			time.Sleep(time.Millisecond)
			ids := []string{v.first, "b", "c"}
			asked := ids[hashslot.Of(tag)/10]
			if v.silent[asked] {
				<-ctx.Done()
				return driver.Reply{}, ctx.Err()
			}
			v.asked++
			var nodes strings.Builder
			for i, id := range ids {
				flags := "master"
				if id == asked {
					flags = "myself,master"
				}
				fmt.Fprintf(&nodes, "%s 127.0.0.1:1 %s - 0 0 1 connected %d-%d\n", id, flags, 10*i, 10*i+9)
			}
			text := func(s string) driver.Reply { return driver.Reply{Kind: driver.Text, Text: s} }
			return driver.Reply{Kind: driver.Array, Array: []driver.Reply{text("run " + asked), text(nodes.String())}}, nil
		},
	}
	return v
}

// confirm asks for a vote in slot 9, and waits for a second at most.
func (v *viewed) confirm(t *testing.T, run string) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return v.view.confirm(ctx, 9, run)
}

// A client that meets the master which took another's place asks the others, and does not take their earlier
// word for it that the other has the slot.
func TestViewOfANewMaster(t *testing.T) {
	t.Parallel()
	for what, idle := range map[string]time.Duration{"a busy client": viewRenew / 5, "an idle client": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			v := newViewed(t)
			if err := v.confirm(t, "run a"); err != nil {
				t.Fatalf("%s: the master: %v", what, err)
			}
			time.Sleep(idle)
			v.first = "d"
			if err := v.confirm(t, "run d"); err != nil {
				t.Errorf("%s: the new master: %v", what, err)
			}
			time.Sleep(viewLimit)
			if err := v.confirm(t, "run a"); !errors.Is(err, errReplaced) {
				t.Errorf("%s: the former master: %v", what, err)
			}
			synctest.Wait()
			time.Sleep(viewLimit) // by then its round has ended
		})
	}
}
