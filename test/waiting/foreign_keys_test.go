package waiting

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

func nextKey(name string) string { return "redlatch:{" + name + "}:next:" + name }

func heartbeatsKey(name string) string { return "redlatch:{" + name + "}:heartbeats:" + name }

// fakeTickets puts tickets of nobody in the queue for name. Their heartbeats are due at the
// time at; they have none if that is "".
func fakeTickets(t *testing.T, s *redistest.Server, name string, n int, at string) {
	t.Helper()
	for begin := 0; begin < n; begin += 500 {
		queue, heartbeats := []string{"ZADD", queueKey(name)}, []string{"ZADD", heartbeatsKey(name)}
		for i := begin; i < min(n, begin+500); i++ {
			who := fmt.Sprintf("nobody%d/%d", i, i)
			queue, heartbeats = append(queue, "0", who), append(heartbeats, at, who)
		}
		locktest.Do(t, s, queue...)
		if at != "" {
			locktest.Do(t, s, heartbeats...)
		}
	}
}

// fakes are what somebody else may have written to the keys of the wait queue.
func fakes() map[string]func(t *testing.T, s *redistest.Server, name string) {
	year5000 := fmt.Sprint(time.Date(5000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli())
	set := func(key func(name string) string, value string) func(*testing.T, *redistest.Server, string) {
		return func(t *testing.T, s *redistest.Server, name string) { locktest.Do(t, s, "SET", key(name), value) }
	}
	list := func(key func(name string) string) func(*testing.T, *redistest.Server, string) {
		return func(t *testing.T, s *redistest.Server, name string) {
			locktest.Do(t, s, "DEL", key(name))
			locktest.Do(t, s, "RPUSH", key(name), "x")
		}
	}
	tickets := func(n int, at string) func(*testing.T, *redistest.Server, string) {
		return func(t *testing.T, s *redistest.Server, name string) {
			if kind := locktest.Do(t, s, "TYPE", queueKey(name)); kind != "zset" {
				locktest.Do(t, s, "DEL", queueKey(name))
			}
			if kind := locktest.Do(t, s, "TYPE", heartbeatsKey(name)); kind != "zset" {
				locktest.Do(t, s, "DEL", heartbeatsKey(name))
			}
			fakeTickets(t, s, name, n, at)
		}
	}
	all := map[string]func(*testing.T, *redistest.Server, string){
		"next with a far deadline":            set(nextKey, "nobody/1 "+year5000+" "),
		"next with a far deadline, -":         set(nextKey, "-nobody/1 "+year5000+" somebody"),
		"next with a huge deadline":           set(nextKey, "nobody/1 "+fmt.Sprintf("%0400d", 9)+" "),
		"next of another type":                list(nextKey),
		"next is garbage":                     set(nextKey, "\x00garbage"),
		"next is empty":                       set(nextKey, ""),
		"next is a space":                     set(nextKey, " "),
		"next names nobody":                   set(nextKey, "=nobody/1"),
		"next names nothing":                  set(nextKey, "="),
		"tickets without heartbeats":          tickets(3000, ""),
		"tickets with far heartbeats":         tickets(3000, year5000),
		"tickets with infinite heartbeats":    tickets(3000, "+inf"),
		"tickets with heartbeats of the past": tickets(3000, "-inf"),
		"queue is a string":                   set(queueKey, "x"),
		"heartbeats are a list":               list(heartbeatsKey),
	}
	parts := []string{"next with a far deadline", "tickets with far heartbeats", "heartbeats are a list"}
	all["all at once"] = func(t *testing.T, s *redistest.Server, name string) {
		for _, part := range parts {
			all[part](t, s, name)
		}
	}
	return all
}

// promptly is much longer than anything here takes, and much shorter than to wait until a
// ticket lapses again and again.
const promptly = 8 * time.Second

// Keys of the wait queue that somebody else has written are in nobody's way: a free lock is
// had at once, those who wait have it in turn, and a release succeeds.
func TestForeignKeysOfTheQueue(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := locktest.SharedOf(t, binary, 1)[0]
		conf := locktest.Config(server.URL())
		clients := []*redlatch.Client{locktest.Open(t, conf), locktest.Open(t, conf), locktest.Open(t, conf)}
		for what, fake := range fakes() {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				// inTime has do take no longer than it should. A busy machine may, but not each time.
				inTime := func(t *testing.T, do func(name string) (slow string)) {
					const tries = 20
					for try := 1; ; try++ {
						slow := do(fmt.Sprintf("%s/%d", t.Name(), try))
						if slow == "" {
							return
						}
						if try == tries {
							t.Fatal(slow)
						}
					}
				}
				took := func(doing string, start time.Time, limit time.Duration) (slow string) {
					if d := time.Since(start); d > limit {
						slow = fmt.Sprintf("%s took %v", doing, d)
					}
					return slow
				}
				t.Run("free", func(t *testing.T) {
					name := t.Name()
					fake(t, server, name)
					locktest.Unlock(t, locktest.TryLock(t, clients[0], name))
				})
				t.Run("in turn", func(t *testing.T) {
					inTime(t, func(name string) string {
						fake(t, server, name)
						start := time.Now()
						for range 2 {
							for _, client := range clients {
								lock, err := client.Lock(locktest.Within(t, locktest.Patience), name)
								if err != nil {
									t.Fatal(err)
								}
								locktest.Unlock(t, lock)
							}
						}
						return took("to lock in turn", start, promptly)
					})
				})
				t.Run("while others wait", func(t *testing.T) {
					inTime(t, func(name string) string {
						held := locktest.TryLock(t, clients[0], name)
						var group sync.WaitGroup
						for _, client := range clients[1:] {
							group.Go(func() {
								lock, err := client.Lock(locktest.Within(t, locktest.Patience), name)
								if err != nil {
									t.Error(err)
									return
								}
								locktest.Unlock(t, lock)
							})
						}
						awaitQueued(t, []*redistest.Server{server}, name, 2)
						fake(t, server, name)
						start := time.Now()
						locktest.Unlock(t, held)
						slow := took("to unlock", start, promptly/4)
						group.Wait()
						return slow + took("to have it in turn", start, promptly)
					})
				})
			})
		}
	})
}
