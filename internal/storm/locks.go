package storm

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// locks are a few names, clients that lock them in turn, and the record of all holders.
type locks struct {
	names    []string
	clients  []*redlatch.Client
	holdings *holdings
}

func newLocks() locks { return locks{holdings: &holdings{start: time.Now()}} }

// begin has the clients' workers lock names until stop is called, which waits for them. How
// they do it is up to the seed; when is up to the machine.
func (l *locks) begin(ctx context.Context, seed uint64) (stop func()) {
	working, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	for i, client := range l.clients {
		of, idle := 10, time.Duration(0)
		if i == 0 { // whose connections see nothing for long
			of, idle = 2, 3*time.Second
		}
		for k := range of {
			luck := rand.New(rand.NewPCG(seed, uint64(1+100*i+k)))
			workers.Go(func() { l.work(working, client, luck, idle) })
		}
	}
	return func() {
		cancel()
		workers.Wait()
	}
}

// work locks names until ctx is done.
func (l *locks) work(ctx context.Context, client *redlatch.Client, luck *rand.Rand, idle time.Duration) {
	for ctx.Err() == nil {
		name := l.names[luck.IntN(len(l.names))]
		var options []redlatch.Option
		if luck.IntN(2) == 0 {
			options = append(options, redlatch.WithoutRenewal())
		}
		hold := time.Duration(luck.IntN(40)) * time.Millisecond
		if luck.IntN(30) == 0 {
			hold = time.Duration(luck.IntN(1500)) * time.Millisecond
		}
		var lock *redlatch.Lock
		var err error
		if luck.IntN(3) == 0 {
			lock, err = client.TryLock(ctx, name, options...)
		} else {
			limit, cancel := context.WithTimeout(ctx, time.Duration(luck.IntN(500))*time.Millisecond)
			lock, err = client.Lock(limit, name, options...)
			cancel()
		}
		if err == nil {
			l.holdings.keep(lock, hold, ctx.Done())
			lock.Unlock(context.WithoutCancel(ctx)) // a lock that is lost cannot be
		}
		Rest(ctx, time.Duration(luck.IntN(5))*time.Millisecond+idle)
	}
}

// enough reports whether there were so many holders that they prove something.
func (l *locks) enough() bool { return l.holdings.count() >= 10*len(l.names) }

// check fails the test where there were two holders, or a token did not grow.
func (l *locks) check(t *testing.T, done []string) {
	t.Helper()
	t.Logf("%d faults, %d holders, %d of whose locks were lost: %v", len(done), l.holdings.count(), l.holdings.lost, done)
	if !l.enough() {
		t.Errorf("%d holders are too few to prove anything", l.holdings.count())
	}
	wrong := l.holdings.judge()
	for _, w := range wrong[:min(len(wrong), 10)] {
		t.Error(w)
	}
	if len(wrong) > 0 {
		t.Errorf("%d are wrong", len(wrong))
	}
}
