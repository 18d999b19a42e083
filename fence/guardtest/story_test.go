package guardtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redlatch/redlatch/fence"
)

// A guarding says what the clients of a story guard.
type guarding int

const (
	unguarded guarding = iota
	writesOnly
	enterFirst
)

func (g guarding) String() string { return [...]string{"unguarded", "writes only", "enter first"}[g] }

// wantStale fails unless err is a *StaleError with these tokens.
func wantStale(t *testing.T, err error, token, largest uint64) {
	t.Helper()
	stale, ok := errors.AsType[*fence.StaleError](err)
	if !ok || !errors.Is(err, fence.ErrStale) || stale.Token != token || stale.Largest != largest {
		t.Fatalf("got %v, want token %d refused for %d", err, token, largest)
	}
}

// TestStories plays Kleppmann's story against each guard ("How to do distributed locking", 2016): client 1, with token
// 33, reads and is paused; client 2, with 34, reads and writes; client 1 wakes up and writes. In the second story client
// 1 wakes up between client 2's read and write. With nothing guarded both lose an update, with only the writes guarded
// the second does, and with the token announced before the read neither.
func TestStories(t *testing.T) {
	for name, fresh := range resources() {
		t.Run(name, func(t *testing.T) {
			for g := unguarded; g <= enterFirst; g++ {
				for _, lateWriteFirst := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/late write first %t", g, lateWriteFirst), func(t *testing.T) {
						story(t, fresh(t), g, lateWriteFirst)
					})
				}
			}
		})
	}
}

func story(t *testing.T, r resource, g guarding, lateWriteFirst bool) {
	ctx := t.Context()
	acknowledged := 0
	read := func(token uint64) int {
		value, err := r.read(ctx, token, g == enterFirst)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	write := func(token uint64, value int) error {
		err := r.write(ctx, token, g != unguarded, value)
		if err == nil {
			acknowledged++
		}
		return err
	}

	read33 := read(33)
	read34 := read(34)
	var late error
	if lateWriteFirst {
		late = write(33, read33+1)
	}
	if err := write(34, read34+1); err != nil {
		t.Fatal(err)
	}
	if !lateWriteFirst {
		late = write(33, read33+1)
	}

	value, err := r.read(ctx, 34, false)
	if err != nil {
		t.Fatal(err)
	}
	lost := acknowledged - value
	if g == enterFirst || g == writesOnly && !lateWriteFirst {
		wantStale(t, late, 33, 34)
		if lost != 0 {
			t.Errorf("%d acknowledged updates lost", lost)
		}
		// Refused means refused from now on, reads included, and the holder itself goes on.
		_, err := r.read(ctx, 33, true)
		wantStale(t, err, 33, 34)
		if err := r.write(ctx, 34, true, value); err != nil {
			t.Error(err)
		}
		return
	}
	if late != nil || lost != 1 {
		t.Errorf("late write: %v, %d lost, want it accepted and 1 lost, or the story shows nothing", late, lost)
	}
}

// TestHammer has workers take growing tokens, as if each one's lock had run out as soon as it had it, and add 1 to the
// counter: in one guarded access, or by a guarded read, a pause, and a guarded write. Every acknowledged update must be
// there at the end.
func TestHammer(t *testing.T) {
	seed := newSeed(t)
	for name, fresh := range resources() {
		t.Run(name, func(t *testing.T) { hammer(t, fresh(t), seed) })
	}
}

func hammer(t *testing.T, r resource, seed uint64) {
	const workers, rounds = 8, 25
	var next atomic.Uint64
	var acknowledged, refused, aborted atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for range rounds {
				token := next.Add(1)
				switch err := update(t.Context(), r, token, rng); {
				case err == nil:
					acknowledged.Add(1)
				case errors.Is(err, fence.ErrStale):
					refused.Add(1)
				case sqlState(err) == "40001":
					aborted.Add(1) // of SERIALIZABLE: rolled back, and said so
				default:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	value, err := r.read(t.Context(), next.Load(), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d acknowledged, %d refused, %d aborted", acknowledged.Load(), refused.Load(), aborted.Load())
	if int64(value) != acknowledged.Load() || value == 0 {
		t.Errorf("%d updates acknowledged, %d there", acknowledged.Load(), value)
	}
}

func update(ctx context.Context, r resource, token uint64, rng *rand.Rand) error {
	if a, ok := r.(adder); ok && rng.IntN(2) == 0 {
		return a.add(ctx, token)
	}
	value, err := r.read(ctx, token, true)
	if err != nil {
		return err
	}
	for range rng.IntN(50) {
		runtime.Gosched()
	}
	return r.write(ctx, token, true, value+1)
}

// sqlState returns PostgreSQL's code for an error, "" for other errors.
func sqlState(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	return ""
}
