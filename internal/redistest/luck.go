package redistest

import (
	"math/rand/v2"
	"time"
)

// luck is what chance adds to the delay of one item.
type luck struct {
	fraction float64       // of the jitter, whatever that is when the item is due
	extra    time.Duration // from Reorder
}

func (l luck) of(jitter time.Duration) time.Duration {
	return time.Duration(l.fraction * float64(jitter))
}

// dice are rolled once for each item of one direction of one connection, always
// in the items' order: the same seed gives the same items the same luck.
type dice struct {
	jitter, order *rand.Rand
	orderSeed     uint64
	stream        uint64
}

func newDice(seed uint64, conn int, dir Direction) *dice {
	stream := uint64(conn)<<2 | uint64(dir)
	return &dice{jitter: rand.New(rand.NewPCG(seed, stream)), stream: stream}
}

func (d *dice) roll(r rules) luck {
	l := luck{fraction: d.jitter.Float64()}
	if r.reorderMax > 0 {
		if d.order == nil || d.orderSeed != r.reorderSeed {
			d.orderSeed = r.reorderSeed
			d.order = rand.New(rand.NewPCG(r.reorderSeed, d.stream))
		}
		l.extra = time.Duration(d.order.Int64N(int64(r.reorderMax)))
	}
	return l
}
