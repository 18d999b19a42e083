package storm

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// The judge finds what it is there for, and nothing else.
func TestHoldingsJudge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		all   []holding
		wrong int
	}{
		{"none", nil, 0},
		{"in order", []holding{{"a", 2, 20, 30}, {"a", 1, 0, 20}, {"b", 1, 5, 50}, {"a", 7, 31, 31}}, 0},
		{"an overlap", []holding{{"a", 1, 0, 20}, {"a", 2, 19, 30}}, 1},
		{"an overlap with one before the last", []holding{{"a", 1, 0, 90}, {"a", 2, 95, 99}, {"a", 3, 96, 97}, {"a", 4, 98, 120}}, 2},
		{"within another", []holding{{"a", 1, 0, 90}, {"a", 2, 10, 11}}, 1},
		{"a token backward", []holding{{"a", 5, 0, 10}, {"a", 4, 10, 20}, {"a", 6, 20, 30}}, 1},
		{"a token twice", []holding{{"a", 5, 0, 10}, {"a", 5, 10, 20}}, 1},
		{"a token backward behind a larger one", []holding{{"a", 5, 0, 10}, {"a", 9, 10, 20}, {"a", 7, 20, 30}, {"a", 8, 30, 40}}, 2},
	} {
		h := holdings{all: c.all}
		if wrong := h.judge(); len(wrong) != c.wrong {
			t.Errorf("%s: %d found, want %d: %q", c.what, len(wrong), c.wrong, wrong)
		}
	}
}

// A holder that looks at its lock only when it has run out may do so after the next one has had it.
func TestHoldingsOfALockThatIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{TTL: time.Second})
		h := holdings{start: time.Now()}
		over, err := client.Lock(t.Context(), "a", redlatch.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		next, err := client.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		h.keep(next, time.Millisecond, nil)
		if err := next.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.keep(over, time.Millisecond, nil)
		if wrong := h.judge(); len(wrong) > 0 || h.lost != 1 {
			t.Errorf("%d lost, %q", h.lost, wrong)
		}
	})
}
