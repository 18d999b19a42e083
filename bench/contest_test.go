package bench

import (
	"flag"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

var slice = flag.Duration("slice", 250*time.Millisecond, "how long one contestant plays in one round; -short makes it a fifth")

func sliceLength() time.Duration {
	if testing.Short() {
		return *slice / 5
	}
	return *slice
}

// entrant is a connected contestant.
type entrant struct {
	name   string
	locker locker
	// base is the index of the entrant it is compared with.
	base int
}

// contest plays one round an iteration of b, each beginning with another
// entrant, so that none always follows the same one.
func contest(b *testing.B, entrants []entrant, callers int, on []*redistest.Server) *result {
	b.Helper()
	d := sliceLength()
	r := new(result)
	for _, e := range entrants {
		r.names = append(r.names, e.name)
		r.base = append(r.base, e.base)
		// Connections, pools and script caches are filled before it counts.
		played(b, e, d/5, func(d time.Duration) (*sample, error) { return play(e.locker, callers, d), nil })
	}
	for b.Loop() {
		round := make([]*sample, len(entrants))
		for i := range entrants {
			k := (i + len(r.rounds)) % len(entrants)
			round[k] = played(b, entrants[k], d, func(d time.Duration) (*sample, error) { return playOn(on, entrants[k].locker, callers, d) })
		}
		r.rounds = append(r.rounds, round)
	}
	b.ReportMetric(0, "ns/op") // a round is as long as it was made
	return r
}

// played has an entrant play for d, and for longer where a busy machine's had no pair in it.
func played(b *testing.B, e entrant, d time.Duration, play func(d time.Duration) (*sample, error)) *sample {
	b.Helper()
	for longest := 32 * d; ; d *= 2 {
		s, err := play(d)
		if err != nil {
			b.Fatal(err)
		}
		if s.pairs > 0 {
			return s
		}
		if d == longest {
			b.Fatalf("%s: %v", e.name, s.err)
		}
	}
}
