package waiting

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// queuedAs counts those who are in the wait queue on any of the nodes, readers or writers.
func queuedAs(t *testing.T, nodes []*redistest.Server, name string, readers bool) int {
	n := 0
	for _, s := range nodes {
		for _, waiter := range locktest.Do(t, s, "ZRANGE", node.SideKeys(name)[2], "0", "-1").([]any) {
			if strings.HasPrefix(waiter.(string), vote.Reader) == readers {
				n++
			}
		}
	}
	return n
}

// With readers always in, a writer waits for those who came before it: of those who come when it is in
// the queue none goes in first.
func TestReadersLetAWriterIn(t *testing.T) {
	for n, delay := range map[int]time.Duration{1: 0, 3: 5 * time.Millisecond, 5: 0} {
		t.Run(fmt.Sprintf("N=%d arbiter late by %v", n, delay), func(t *testing.T) {
			t.Parallel()
			const clients, callers, writes = 3, 10, 15
			nodes := locktest.Shared(t, n)
			proxies := redistest.Proxies(t, nodes)
			c := locktest.Config(locktest.ProxyURLs(proxies)...)
			slowDownArbiter(t, nodes, proxies, c, delay)
			ctx, stop := context.WithCancel(t.Context())
			gate := &locktest.Readers{T: t}
			var queued atomic.Int64 // the number of the writer that is in the queue
			var passed, reads atomic.Int64
			late, counted, excused := locktest.WatchLateness(t, nodes...), int64(0), int64(0)
			var all sync.WaitGroup
			for range clients {
				client := locktest.Open(t, c)
				for range callers {
					all.Go(func() {
						for ctx.Err() == nil {
							before := queued.Load()
							lock, err := client.RLock(ctx, t.Name())
							if err != nil {
								if ctx.Err() == nil {
									t.Error(err)
								}
								return
							}
							if before > 0 && queued.Load() == before {
								passed.Add(1)
							}
							reads.Add(1)
							gate.Pass(lock, true, func() { time.Sleep(2 * time.Millisecond) })
						}
					})
				}
			}
			writer := locktest.Open(t, c)
			for i := int64(1); i <= writes; i++ {
				locktest.Await(t, "readers are in", func() bool { return strings.HasPrefix(locktest.Value(t, nodes[0], t.Name()), vote.SharedMark) })
				late.Take()
				out := make(chan locktest.Outcome, 1)
				go func() {
					lock, err := writer.Lock(locktest.Within(t, 4*locktest.Patience), t.Name()) // of a busy machine the readers take the most
					queued.Store(0)
					out <- locktest.Outcome{Lock: lock, Err: err}
				}()
				var o locktest.Outcome
				for o == (locktest.Outcome{}) {
					if queued.Load() == 0 && queuedAs(t, nodes, t.Name(), false) > 0 {
						queued.CompareAndSwap(0, i)
					}
					select {
					case o = <-out:
						queued.Store(0)
					default:
					}
				}
				if o.Err != nil {
					t.Fatal(o.Err)
				}
				gate.Pass(o.Lock, false, nil)
				// A writer that is starved for as long as its turn misses it, and the readers behind it go in.
				if n := passed.Swap(0); late.Take() > script.Grace/4 {
					excused += n
				} else {
					counted += n
				}
			}
			stop()
			all.Wait()
			for _, s := range nodes {
				for i, key := range append(node.SideKeys(t.Name()), t.Name()) {
					if i > 0 { // but for the counter
						locktest.Await(t, key+" is gone", func() bool { return locktest.Do(t, s, "EXISTS", key) == int64(0) })
					}
				}
			}
			t.Logf("%d readers, %d together, passed one of %d writers %d times, and %d times where the machine was late", reads.Load(), gate.Together(), writes, counted, excused)
			// Over several nodes one who has not heard that others wait may be let in by a quorum without the
			// arbiter, where that is late.
			if most := int64((n - 1) / 2 * clients * callers); counted > most {
				t.Errorf("readers passed a writer %d times", counted)
			}
		})
	}
}

// slowDownArbiter has the replies of the node that keeps the queue for the test's name come later.
func slowDownArbiter(t *testing.T, nodes []*redistest.Server, proxies []*redistest.Proxy, c redlatch.Config, by time.Duration) {
	client := locktest.Open(t, c)
	lock := locktest.TryLock(t, client, t.Name())
	ctx, cancel := context.WithCancel(t.Context())
	next := locktest.LockIn(ctx, client, t.Name())
	other := locktest.LockIn(ctx, locktest.Open(t, c), t.Name())
	proxies[awaitQueued(t, nodes, t.Name(), 1)].Delay(redistest.Replies, by, 0)
	cancel()
	<-next
	<-other
	locktest.Unlock(t, lock)
}

// With writers always waiting, a reader waits for one of them: who holds when it comes, or is woken up.
func TestWritersLetAReaderIn(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		for _, same := range []bool{false, true} {
			t.Run(fmt.Sprintf("N=%d same=%t", n, same), func(t *testing.T) {
				t.Parallel()
				writersLetAReaderIn(t, n, same)
			})
		}
	}
}

// writersLetAReaderIn has writers and readers, of one client or each writer of another.
func writersLetAReaderIn(t *testing.T, n int, same bool) {
	const writers, readers, rounds = 6, 3, 10
	nodes := locktest.Shared(t, n)
	c := locktest.Config(redistest.URLs(nodes)...)
	ctx, stop := context.WithCancel(t.Context())
	gate := &locktest.Readers{T: t}
	var writes atomic.Int64
	var all sync.WaitGroup
	client := locktest.Open(t, c)
	for range writers {
		writer := client
		if !same {
			writer = locktest.Open(t, c)
		}
		all.Go(func() {
			for ctx.Err() == nil {
				lock, err := writer.Lock(ctx, t.Name())
				if err != nil {
					return
				}
				writes.Add(1)
				gate.Pass(lock, false, func() { time.Sleep(time.Millisecond) })
			}
		})
	}
	most, late := int64(0), locktest.WatchLateness(t, nodes...)
	for range rounds {
		waited := int64(0)
		late.Take()
		locktest.Await(t, "a writer holds", func() bool { return locktest.Value(t, nodes[0], t.Name()) != "" })
		outs := make(chan locktest.Outcome, readers)
		for range readers {
			go func() {
				lock, err := client.RLock(locktest.Within(t, locktest.Patience), t.Name())
				outs <- locktest.Outcome{Lock: lock, Err: err}
			}()
		}
		before := int64(-1)
		for got := 0; got < readers; {
			if before < 0 && queuedAs(t, nodes, t.Name(), true) == readers {
				before = writes.Load()
			}
			select {
			case o := <-outs:
				if o.Err != nil {
					t.Fatal(o.Err)
				}
				if before >= 0 {
					waited = max(waited, writes.Load()-before)
				}
				got++
				gate.Pass(o.Lock, true, nil)
			default:
			}
		}
		// A reader that is starved for as long as its turn misses it, and writers behind it go in.
		if late.Take() <= script.Grace/4 {
			most = max(most, waited)
		}
	}
	stop()
	all.Wait()
	t.Logf("%d writers; a reader in the queue waited for %d of them at most", writes.Load(), most)
	if most > int64(1+(n-1)/2) { // as for readers; but a writer asks all nodes at once, and waits for a quorum
		t.Errorf("a reader waited for %d writers", most)
	}
}

// More readers wait than are woken up at once, and a writer waits who came after them. It is not before those
// who were not woken up.
func TestManyReadersBeforeAWriter(t *testing.T) {
	t.Parallel()
	const readers = 300
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, n := range []int{1, 3} {
			nodes := locktest.SharedOf(t, binary, n)
			c := locktest.Config(redistest.URLs(nodes)...)
			clients := clientsOf(t, c, 3)
			inTurn(t, nodes, "after 300", func(try int) string {
				name := fmt.Sprintf("%s/%d/%d", t.Name(), n, try)
				first := locktest.TryLock(t, clients[0], name)
				var read atomic.Int32
				var all sync.WaitGroup
				for range readers {
					out := locktest.RLockIn(locktest.Within(t, locktest.Patience), clients[1], name)
					all.Go(func() {
						o := <-out
						if o.Err != nil {
							t.Error(o.Err)
							return
						}
						read.Add(1)
						locktest.Unlock(t, o.Lock)
					})
				}
				awaitQueued(t, nodes, name, readers)
				writer := locktest.LockIn(locktest.Within(t, locktest.Patience), clients[2], name)
				awaitQueued(t, nodes, name, readers+1)
				locktest.Unlock(t, first)
				o := <-writer
				order := fmt.Sprintf("after %d", read.Load())
				if o.Err != nil {
					t.Fatal(o.Err)
				}
				locktest.Unlock(t, o.Lock)
				all.Wait()
				return order
			})
		}
	})
}
