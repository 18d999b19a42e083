package redlatch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// A call under a lock does not wait for that lock, be it the first of its names that they have in common or another; and for others it waits.
func TestNoneOfSeveralWaitsForItself(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		held, wanted []string
		refused      bool
	}{
		{[]string{"b"}, []string{"b"}, true},
		{[]string{"b"}, []string{"a"}, false},
		{[]string{"a", "b", "c"}, []string{"a"}, true},
		{[]string{"a", "b", "c"}, []string{"c"}, true},
		{[]string{"a", "b", "c"}, []string{"d"}, false},
		{[]string{"a"}, []string{"c", "b", "a"}, true},
		{[]string{"c"}, []string{"c", "b", "a"}, true},
		{[]string{"d"}, []string{"c", "b", "a"}, false},
		{[]string{"a", "d"}, []string{"b", "d"}, true},
		{[]string{"a", "c"}, []string{"b", "d"}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := redlatchtest.New(t, redlatch.Config{})
			lock, err := client.LockAll(t.Context(), c.held)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(lock.Context(), time.Second)
			defer cancel()
			inner, err := client.LockAll(ctx, c.wanted)
			if refused := errors.Is(err, redlatch.ErrInvalid); refused != c.refused || err != nil && !refused {
				t.Errorf("%v under %v: %v", c.wanted, c.held, err)
			}
			if inner != nil {
				_ = inner.Unlock(ctx)
			}
			if err := lock.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A call for several names keeps the number of its last place, also where a try without one follows, and when it takes the names
// one by one.
func TestNumberOfSeveralNames(t *testing.T) {
	t.Parallel()
	client := redlatchtest.New(t, redlatch.Config{}).Client
	for _, c := range []struct {
		places []uint64
		want   uint64
	}{{nil, 0}, {[]uint64{0}, 0}, {[]uint64{7}, 7}, {[]uint64{7, 0}, 7}, {[]uint64{7, 9}, 9}} {
		if whole, single := redlatch.NumberAfter(client, c.places...); whole != c.want || single != c.want {
			t.Errorf("after %v: %d, and %d for one name", c.places, whole, single)
		}
	}
}
