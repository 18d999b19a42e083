package locktest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// noted keeps what a turnstile says.
type noted []string

func (n *noted) Errorf(format string, args ...any) { *n = append(*n, fmt.Sprintf(format, args...)) }

// A turnstile finds what it is there for, and nothing else.
func TestTurnstile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		story func(s *Turnstile, lock, elsewhere func() *redlatch.Lock)
		wrong int
	}{
		{"one after the other", func(s *Turnstile, lock, _ func() *redlatch.Lock) {
			s.Pass(lock(), "a")
			s.Pass(lock(), "b")
		}, 0},
		{"two at once", func(s *Turnstile, lock, elsewhere func() *redlatch.Lock) {
			s.Enter(lock(), "a")
			time.Sleep(time.Millisecond)
			s.Enter(elsewhere(), "b")
		}, 1},
		{"a smaller token", func(s *Turnstile, lock, elsewhere func() *redlatch.Lock) {
			first := lock()
			time.Sleep(time.Millisecond)
			s.Pass(elsewhere(), "b")
			s.Pass(first, "a")
		}, 1},
		{"one that comes when its lock is over and the next has passed", func(s *Turnstile, lock, elsewhere func() *redlatch.Lock) {
			first := lock()
			time.Sleep(time.Second)
			other := elsewhere()
			time.Sleep(time.Second)
			s.Pass(lock(), "b")
			s.Enter(first, "a")
			s.Enter(other, "c") // over, too
		}, 0},
		{"a smaller token after one whose lock is over", func(s *Turnstile, lock, elsewhere func() *redlatch.Lock) {
			over := lock()
			time.Sleep(2 * time.Second)
			smaller := elsewhere()
			time.Sleep(time.Millisecond)
			s.Pass(lock(), "b")
			s.Enter(over, "a")
			s.Pass(smaller, "c")
		}, 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := func() func() *redlatch.Lock {
					client := redlatchtest.New(t, redlatch.Config{TTL: time.Second})
					return func() *redlatch.Lock {
						lock, err := client.Lock(t.Context(), "lock", redlatch.WithoutRenewal())
						if err != nil {
							t.Fatal(err)
						}
						return lock
					}
				}
				var found noted
				c.story(&Turnstile{T: &found}, locks(), locks())
				if len(found) != c.wrong {
					t.Errorf("%d found, want %d: %q", len(found), c.wrong, found)
				}
			})
		})
	}
}
