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
				isKeptOut(t, held, lock, err)
			})
		})
	}
}

// admits reports whether a command admits a server.
func admits(args []string) bool { return len(args) > 6 && args[6] == script.Admit }

// vouchAmid has an operator vouch for the server, who is to be refused: f is called between the look at it and its admission.
func vouchAmid(t *testing.T, config redlatch.Config, f func()) {
	t.Helper()
	err := openAmid(t, config, admits, sync.OnceFunc(f)).Admit(t.Context(), config.Nodes[0])
	if err == nil {
		t.Error("it was admitted")
	}
	t.Log(err)
}

// An operator vouches for a server on which a lock is held. Between the look at it and the admission it loses its keys: the word was
// not for that.
func TestAdmitIsForWhatWasSeen(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(t *testing.T, s *redistest.Server){
		"FLUSHALL": func(t *testing.T, s *redistest.Server) { locktest.Do(t, s, "FLUSHALL") },
		"a restart": func(t *testing.T, s *redistest.Server) {
			if err := s.Restart(t.Context()); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				server := redistest.New(t, redistest.Options{Binary: binary})
				config := locktest.WithMaxTTL(locktest.WithQuarantine(server.URL()), 8*time.Second)
				other := locktest.Open(t, config)
				locktest.Vouch(t, other, config.Nodes...)
				held := locktest.TryLock(t, other, "x", redlatch.WithoutRenewal())
				vouchAmid(t, config, func() { lose(t, server) })
				lock, err := locktest.AwaitAnswer(t, locktest.Open(t, config), "x")
				isKeptOut(t, held, lock, err)
			})
		})
	}
}

// An operator vouches, and before that is done, all keys of the server are deleted, with a lock in them, by a command that nothing counts.
// Others keep the server out for it. What they wrote is not what the operator has seen.
func TestAdmitEndsNoLaterQuarantine(t *testing.T) {
	t.Parallel()
	for what, keepOut := range map[string]func(t *testing.T, c *redlatch.Client, node string){
		"deployment set": func(t *testing.T, c *redlatch.Client, node string) {
			if err := c.Reset(t.Context(), node); err != nil {
				t.Error(err)
			}
		},
		"a client": func(t *testing.T, c *redlatch.Client, _ string) {
			if _, err := locktest.AwaitAnswer(t, c, "y"); err == nil {
				t.Error("nothing keeps the server out")
			}
		},
		"nobody": func(*testing.T, *redlatch.Client, string) {},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				server := redistest.New(t, redistest.Options{Binary: binary})
				config := locktest.WithMaxTTL(locktest.WithQuarantine(server.URL()), 8*time.Second)
				other := locktest.Open(t, config)
				var held *redlatch.Lock
				vouchAmid(t, config, func() {
					locktest.Vouch(t, other, config.Nodes...)
					held = locktest.TryLock(t, other, "x", redlatch.WithoutRenewal())
					deleteAll(t, server)
					keepOut(t, locktest.Open(t, config), config.Nodes[0])
				})
				lock, err := locktest.AwaitAnswer(t, locktest.Open(t, config), "x")
				isKeptOut(t, held, lock, err)
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
