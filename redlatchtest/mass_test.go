package redlatchtest

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
)

// Of many locks that are lost at once, or whose WithMinHold ends at once, some hundreds are released at a time, and
// all of them in the end. It counts goroutines, so it runs beside no other test.
func TestManyEndAtOnce(t *testing.T) {
	const many = 3000
	for kind, minHold := range map[string]time.Duration{"lost": 0, "kept": 4 * time.Second} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := New(t, shortTTL)
				held := make([]*redlatch.Lock, many)
				for i := range held {
					lock, err := locks.TryLock(t.Context(), fmt.Sprint(i), redlatch.WithMinHold(minHold))
					if err != nil {
						t.Fatal(err)
					}
					held[i] = lock
				}
				if kind == "kept" {
					for _, lock := range held {
						if err := lock.Unlock(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
				}
				synctest.Wait()
				before, most := goroutines(), 0
				locks.Delay(time.Minute)
				for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
					synctest.Wait() // each lock's alarm has a goroutine for a moment
					most = max(most, goroutines()-before)
				}
				if most < 100 || most > many/4 {
					t.Errorf("%d goroutines more", most)
				}
				for _, lock := range held {
					if err := lock.Err(); !errors.Is(err, redlatch.ErrLost) && kind == "lost" {
						t.Fatalf("not lost: %v", err)
					}
				}
				locks.Delay(0)
				time.Sleep(2 * time.Minute)
				if left := goroutines() - before; left > 50 {
					t.Errorf("%d goroutines are left", left)
				}
				if names := locks.Held(); len(names) > 0 {
					t.Errorf("%d are held still", len(names))
				}
			})
		})
	}
}

// goroutines counts them by their stacks where they seem to be many: on a busy machine runtime.NumGoroutine still counts
// a thousand that have ended.
func goroutines() int {
	n := runtime.NumGoroutine()
	if n < 500 {
		return n
	}
	stacks := make([]byte, 64<<20)
	return 1 + bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("\n\ngoroutine "))
}
