package locking

import (
	"errors"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// List and Permits have each permit that is held, with its holder and all who wait for any, beside a
// lock of such a name, and none of another name.
func TestPermitsAreListed(t *testing.T) {
	t.Parallel()
	c := locktest.Config(redistest.URLs(redistest.Nodes(t, 3))...)
	c.KeyTemplate = "app:{name}:lock"
	holder, waiting := locktest.Open(t, c), c
	waiting.Label = "who waits"
	for _, name := range []string{"pool", "pool", "3:pool", "other"} {
		locktest.TryLock(t, holder, name, redlatch.WithPermits(2), redlatch.WithLabel("who holds"))
	}
	locktest.TryLock(t, holder, "pool#1")
	out := locktest.LockIn(t.Context(), locktest.Open(t, waiting), "pool", redlatch.WithPermits(2))
	defer func() { <-out }()
	defer holder.Close()

	check := func(listed []redlatch.Listed, lock bool) bool {
		var permits int
		for _, l := range listed {
			switch {
			case l.Permit && l.Nodes == 3 && l.Left > 0 && l.Holder.Label == "who holds" && len(l.Waiting) == 1 && l.Waiting[0].Label == waiting.Label &&
				l.Slot == permits && l.Name == []string{"pool#0", "pool#1"}[permits]:
				permits++
			case l.Name == "pool#1" && !l.Permit && l.Nodes == 3:
				lock = !lock
			default:
				t.Logf("%+v", l)
				return false // not on all nodes yet, or the waiter is not queued
			}
		}
		return permits == 2 && !lock
	}
	locktest.Await(t, "List has them", func() bool {
		listed, _, err := redlatch.List(t.Context(), c, "p*l*")
		return err == nil && check(listed, true)
	})
	locktest.Await(t, "Permits has them", func() bool {
		listed, _, err := holder.Permits(t.Context(), "pool")
		return err == nil && check(listed, false)
	})
	if listed, _, err := redlatch.Permits(t.Context(), c, "nothing"); err != nil && !errors.Is(err, redlatch.ErrNoQuorum) || len(listed) > 0 {
		t.Errorf("of another name %v, %v", listed, err)
	}
}

// A pattern is compared with the bytes of names, as KEYS does, be it for locks or for permits.
func TestPatternOfBytes(t *testing.T) {
	t.Parallel()
	c := locktest.Config(redistest.URLs(locktest.Shared(t, 1))...)
	client, name := locktest.Open(t, c), t.Name()+"é"
	locktest.TryLock(t, client, name)
	locktest.TryLock(t, client, name, redlatch.WithPermits(1))
	for pattern, want := range map[string]int{name: 2, t.Name() + "??": 2, t.Name() + "?": 0, t.Name() + "[\xc3]*": 2, t.Name() + "[^\xc3]*": 0} {
		locktest.Await(t, "it is listed", func() bool {
			listed, _, err := client.List(t.Context(), pattern)
			if errors.Is(err, redlatch.ErrInvalid) || err == nil && len(listed) != want {
				t.Errorf("by %q: %+v, want %d: %v", pattern, listed, want, err)
			}
			return err == nil || errors.Is(err, redlatch.ErrInvalid)
		})
	}
}

// A KeyTemplate may have what means something else in a server's pattern.
func TestListWithAnOddTemplate(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	for _, template := range []string{`a[b]:{name}`, `a\b:{name}`, `a*b?:{name}:[c]`} {
		c := locktest.Config(server.URL())
		c.KeyTemplate = template
		client := locktest.Open(t, c)
		lock := locktest.TryLock(t, client, "x")
		permit := locktest.TryLock(t, client, "p", redlatch.WithPermits(2))
		listed, _, err := redlatch.List(t.Context(), c, "*")
		if err != nil || len(listed) != 2 || !listed[0].Permit || listed[1].Name != "x" {
			t.Errorf("%s: listed %+v, %v", template, listed, err)
		}
		locktest.Unlock(t, lock)
		locktest.Unlock(t, permit)
	}
}
