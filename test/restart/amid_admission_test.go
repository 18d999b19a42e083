package restart

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// Between the look at a server that was never used and its admission, another client admits it and has a lock, and all
// keys go by a command that nothing counts. The late admission does not count.
func TestKeysGoneAmidAnAdmission(t *testing.T) {
	t.Parallel()
	for what, gone := range uncounted {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				server := redistest.New(t, redistest.Options{Binary: binary})
				const ttl = 8 * time.Second
				config := locktest.WithMaxTTL(locktest.WithQuarantine(server.URL()), ttl)
				other := locktest.Open(t, config)
				var held *redlatch.Lock
				amid := sync.OnceFunc(func() {
					held = locktest.TryLock(t, other, "x", redlatch.WithoutRenewal())
					gone(t, server)
				})
				client := openAmid(t, config, admits, amid)
				awaitUptime(t, server, ttl+4*time.Second)
				lock, err := locktest.AwaitAnswer(t, client, "x")
				if held == nil {
					t.Fatalf("nothing happened amid the admission: %v", err)
				}
				locktest.IsKeptOut(t, held, lock, err)
			})
		})
	}
}

// admits reports whether a command admits a server.
func admits(args []string) bool { return len(args) > 6 && args[6] == script.Admit }

// An operator vouches for a server. Between the look at it and the admission a lock of it is lost: the word was not for that.
func TestAdmitIsForWhatWasSeen(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		used bool // when the operator vouches; else the server is vouched for, and used, meanwhile
		lose func(t *testing.T, s *redistest.Server, config redlatch.Config)
	}{
		"FLUSHALL": {true, func(t *testing.T, s *redistest.Server, _ redlatch.Config) { locktest.Do(t, s, "FLUSHALL") }},
		"a restart": {true, func(t *testing.T, s *redistest.Server, _ redlatch.Config) {
			if err := s.Restart(t.Context()); err != nil {
				t.Error(err)
			}
		}},
		// Nothing counts such a deletion. Others keep the server out for it: what they write is not what the operator has seen.
		"DEL": {false, func(t *testing.T, s *redistest.Server, _ redlatch.Config) { deleteAll(t, s) }},
		"DEL, deployment set": {false, func(t *testing.T, s *redistest.Server, config redlatch.Config) {
			deleteAll(t, s)
			if err := locktest.Open(t, config).Reset(t.Context(), config.Nodes[0]); err != nil {
				t.Error(err)
			}
		}},
		"DEL, a client": {false, func(t *testing.T, s *redistest.Server, config redlatch.Config) {
			deleteAll(t, s)
			if _, err := locktest.AwaitAnswer(t, locktest.Open(t, config), "y"); err == nil {
				t.Error("nothing keeps the server out")
			}
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				server := redistest.New(t, redistest.Options{Binary: binary})
				config := locktest.WithMaxTTL(locktest.WithQuarantine(server.URL()), 8*time.Second)
				other := locktest.Open(t, config)
				var held *redlatch.Lock
				use := sync.OnceFunc(func() {
					locktest.Vouch(t, other, config.Nodes...)
					held = locktest.TryLock(t, other, "x", redlatch.WithoutRenewal())
				})
				if c.used {
					use()
				}
				amid := sync.OnceFunc(func() {
					use()
					c.lose(t, server, config)
				})
				err := openAmid(t, config, admits, amid).Admit(t.Context(), config.Nodes[0])
				if err == nil {
					t.Error("it was admitted")
				}
				t.Log(err)
				lock, err := locktest.AwaitAnswer(t, locktest.Open(t, config), "x")
				locktest.IsKeptOut(t, held, lock, err)
			})
		})
	}
}

// Several operators vouch for a server at once, while clients ask it for locks. They do not keep each other from it.
func TestOperatorsAdmitAtOnce(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for range 5 {
			server := redistest.New(t, redistest.Options{Binary: binary})
			config := locktest.WithQuarantine(server.URL())
			ctx, cancel := context.WithCancel(t.Context())
			var clients, operators sync.WaitGroup
			for range 4 {
				c := locktest.Open(t, config)
				clients.Go(func() {
					for ctx.Err() == nil {
						if lock, err := c.TryLock(ctx, "x"); err == nil {
							_ = lock.Unlock(ctx)
						}
					}
				})
			}
			var admitted atomic.Int64
			for range 4 {
				c := locktest.Open(t, config)
				operators.Go(func() {
					if err := c.Admit(ctx, config.Nodes[0]); err != nil {
						t.Log(err)
					} else {
						admitted.Add(1)
					}
				})
			}
			operators.Wait()
			cancel()
			clients.Wait()
			if admitted.Load() == 0 {
				t.Error("nobody admitted it")
			}
		}
	})
}
