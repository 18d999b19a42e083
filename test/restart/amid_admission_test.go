package restart

import (
	"sync"
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
				admits := func(args []string) bool { return len(args) > 6 && args[6] == script.Admit }
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
				amid := sync.OnceFunc(func() { lose(t, server) })
				admits := func(args []string) bool { return len(args) > 6 && args[6] == script.Admit }
				if err := openAmid(t, config, admits, amid).Admit(t.Context(), config.Nodes[0]); err == nil {
					t.Error("it was admitted")
				} else {
					t.Log(err)
				}
				lock, err := locktest.AwaitAnswer(t, locktest.Open(t, config), "x")
				isKeptOut(t, held, lock, err)
			})
		})
	}
}
