package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/vote"
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
	before, after, later := mastersOf("a", "b", "c"), mastersOf("d", "b", "c"), mastersOf("d", "e", "c")
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
		{"one names another", map[string]opinion{"a": {"run a", before}, "b": {"run b", after}, "c": {"run c", before}}, "run a", false},
		{"another that was replaced", map[string]opinion{"a": {"run a", before}, "b": {"run b", before}, "c": {"run c", later}}, "run a", false},
		{"those that took their places", map[string]opinion{"a": {"run a", before}, "b": {"run b", before}, "c": {"run c", later}, "d": {"run d", later}, "e": {"run e", later}}, "run d", true},
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
// first is given, and silent are those that do not answer. With stranger, a master without slots answers for them, as
// one may that a slot is just moving to.
type viewed struct {
	*view
	opened clock.Instant

	mu       sync.Mutex // guards what follows
	first    string
	silent   map[string]bool
	stranger bool
}

func (v *viewed) set(change func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change()
}

func newViewed(t *testing.T) *viewed {
	v := &viewed{first: "a", silent: make(map[string]bool), opened: clock.System.Now()}
	v.view = &view{
		more:  make(chan struct{}),
		clock: clock.System,
		start: func(f func(context.Context)) {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), viewLimit/2)
				defer cancel()
				f(ctx)
			}()
		},
		ask: func(ctx context.Context, tag string) (driver.Reply, error) {
			time.Sleep(time.Millisecond)
			v.mu.Lock()
			ids := []string{v.first, "b", "c"}
			asked := ids[hashslot.Of(tag)/10]
			if v.silent[asked] && v.stranger {
				asked = "e"
			}
			silent := v.silent[asked]
			v.mu.Unlock()
			if silent {
				<-ctx.Done()
				return driver.Reply{}, ctx.Err()
			}
			var nodes strings.Builder
			for i, id := range ids {
				flags := "master"
				if id == asked {
					flags = "myself,master"
				}
				fmt.Fprintf(&nodes, "%s 127.0.0.1:1 %s - 0 0 1 connected %d-%d\n", id, flags, 10*i, 10*i+9)
			}
			if asked == "e" {
				nodes.WriteString("e 127.0.0.1:1 myself,master - 0 0 9 connected\n")
			}
			text := func(s string) driver.Reply { return driver.Reply{Kind: driver.Text, Text: s} }
			return driver.Reply{Kind: driver.Array, Array: []driver.Reply{text("run " + asked), text(nodes.String())}}, nil
		},
	}
	return v
}

// stalled reports whether the machine was so busy that a view may be old already. Of the two clocks, one is not the bubble's.
func (v *viewed) stalled() bool { return clock.System.Now().Boot-v.opened.Boot >= viewRenew }

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
			v.set(func() { v.first = "d" })
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

// What the masters said is not believed for long. Until then a vote waits for nobody.
func TestViewOfMastersThatHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newViewed(t)
		if err := v.confirm(t, "run a"); err != nil {
			t.Fatal(err)
		}
		began := v.now.began.Mono
		v.set(func() { v.silent = map[string]bool{"a": true, "b": true, "c": true} })
		time.Sleep(viewLimit - time.Since(began) - time.Millisecond)
		before := time.Now()
		for range 2 {
			if err := v.confirm(t, "run a"); err != nil || time.Since(before) > 0 {
				t.Errorf("just before: %v, after %v", err, time.Since(before))
			}
			synctest.Wait()
		}
		time.Sleep(time.Millisecond)
		if err := v.confirm(t, "run a"); !errors.Is(err, errNoMajority) {
			t.Errorf("then: %v", err)
		}
		time.Sleep(viewLimit) // by then the last round has ended
		if !v.view.silent.Load() {
			t.Error("no master answers, which nobody notices")
		}
	})
}

// The other masters are asked also where a slot's own master does not answer.
func TestViewOfOneMasterThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newViewed(t)
		if err := v.confirm(t, "run a"); err != nil {
			t.Fatal(err)
		}
		v.set(func() { v.silent = map[string]bool{"a": true} })
		time.Sleep(viewLimit)
		if err := v.confirm(t, "run a"); !errors.Is(err, errNoMajority) {
			t.Errorf("it has not said itself that it has the slot: %v", err)
		}
		time.Sleep(viewLimit) // by then the round has ended
		if v.view.silent.Load() {
			t.Error("all masters are taken to be silent")
		}
	})
}

// Where a majority has answered, nobody waits for a master that hangs.
func TestViewDoesNotWaitForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newViewed(t)
		v.set(func() { v.silent = map[string]bool{"c": true} })
		before := time.Now()
		if err := v.confirm(t, "run a"); (err != nil || time.Since(before) > viewLimit/10) && !v.stalled() {
			t.Errorf("after %v: %v", time.Since(before), err)
		}
		time.Sleep(viewLimit) // by then the round has ended
	})
}

// rounds counts the rounds of questions from now on.
func (v *viewed) rounds() (begun *int) {
	begun = new(int)
	start := v.view.start
	v.view.start = func(f func(context.Context)) {
		*begun++
		start(f)
	}
	return begun
}

// The masters are asked anew by the first vote after viewRenew, which does not wait for their answers, and by no other one
// before or while they are asked; also where they do not answer.
func TestViewIsRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newViewed(t)
		begun := v.rounds()
		votes := func(what string, at time.Duration, rounds int) {
			t.Helper()
			time.Sleep(at - time.Since(v.now.began.Mono))
			before := time.Now()
			for range 3 {
				if err := v.confirm(t, "run a"); (err != nil || time.Since(before) > 0) && !v.stalled() {
					t.Errorf("%s: %v, after %v", what, err, time.Since(before))
				}
			}
			if *begun != rounds && !v.stalled() {
				t.Errorf("%s: the masters are asked the %d. time, want %d", what, *begun, rounds)
			}
		}
		if err := v.confirm(t, "run a"); err != nil && !v.stalled() {
			t.Fatal(err)
		}
		votes("soon", viewRenew-1, 1)
		votes("later", viewRenew, 2)
		time.Sleep(viewRenew / 2)
		votes("soon again", viewRenew-1, 2)
		v.set(func() { v.silent = map[string]bool{"a": true, "b": true, "c": true} })
		votes("without answers", viewRenew, 3)
		votes("without answers, later", viewRenew, 3)
		time.Sleep(viewLimit)
	})
}

// Callers who meet a view that is too old wait for one round of questions together.
func TestViewIsRenewedForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newViewed(t)
		begun := v.rounds()
		confirmed := make(chan error)
		const callers = 3
		for range callers {
			go func() { confirmed <- v.confirm(t, "run a") }()
		}
		for range callers {
			if err := <-confirmed; err != nil && !v.stalled() {
				t.Error(err)
			}
		}
		if *begun != 1 && !v.stalled() {
			t.Errorf("the masters are asked %d times", *begun)
		}
		synctest.Wait()
	})
}

// A slot that cannot be connected to is looked for, at most once in viewRenew, by asking the masters that are known.
func TestViewIsRefreshed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newViewed(t)
		begun := v.rounds()
		refresh := func(what string, want int) {
			t.Helper()
			if v.refresh(hashslot.TagOf(9)); *begun != want && !v.stalled() {
				t.Errorf("%s: the masters were asked %d times, want %d", what, *begun, want)
			}
		}
		refresh("no master is known", 0)
		if err := v.confirm(t, "run a"); err != nil && !v.stalled() {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(viewRenew - 1 - time.Since(v.now.began.Mono))
		refresh("a moment ago", 1)
		time.Sleep(time.Nanosecond)
		v.set(func() { v.silent = map[string]bool{"c": true} })
		refresh("later", 2)
		time.Sleep(viewRenew)
		refresh("while one of them is waited for", 2)
		time.Sleep(viewRenew)
		v.set(func() { v.silent = map[string]bool{"a": true, "b": true, "c": true} })
		refresh("later again", 3)
		time.Sleep(2 * viewRenew)
		refresh("none has answered", 3)
	})
}

// A server that answers something else has no say, and one that is not known to have any run has no slot.
func TestViewWithoutOpinions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newViewed(t)
		v.view.ask = func(context.Context, string) (driver.Reply, error) {
			return driver.Reply{Kind: driver.Int, Int: 1}, nil
		}
		for _, run := range []string{"run a", ""} {
			if err := v.confirm(t, run); !errors.Is(err, errNoMajority) {
				t.Errorf("%q: %v", run, err)
			}
		}
	})
}

// A master that has no slot has no say.
func TestViewOfAMasterWithoutSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newViewed(t)
		v.set(func() { v.silent, v.stranger = map[string]bool{"b": true, "c": true}, true })
		if err := v.confirm(t, "run a"); !errors.Is(err, errNoMajority) {
			t.Errorf("one master of three and one without slots: %v", err)
		}
		time.Sleep(viewLimit)
	})
}

// A view lasts, and an attempt begun on it, for less than a quarantine is longer than the longest TTL: by then the
// master that took another's place votes.
func TestViewEndsBeforeTheQuarantine(t *testing.T) {
	t.Parallel()
	if d := (admission.Agreement{}).Quarantine(); viewLimit+vote.LongestAttempt >= d {
		t.Errorf("%v and %v, in a quarantine of %v", viewLimit, vote.LongestAttempt, d)
	}
}
