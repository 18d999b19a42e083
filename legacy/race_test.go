package legacy_test

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// naive is the take-over that the Redis documentation warns of: an expired lock
// is deleted, and set anew by SETNX.
func naive(t *testing.T, proxy *redistest.Proxy, key string) bool {
	conn, err := redistest.Dial(t.Context(), proxy.Addr())
	if err != nil {
		t.Error(err)
		return false
	}
	defer conn.Close()
	number := func(args ...string) int64 {
		reply, err := conn.Do(args...)
		if err != nil {
			t.Error(err)
		}
		switch n := reply.(type) {
		case int64:
			return n
		case string:
			at, _ := strconv.ParseInt(n, 10, 64)
			return at
		}
		return 0
	}
	value := strconv.FormatInt(time.Now().Unix()+20+1, 10)
	if number("SETNX", key, value) == 1 {
		return true
	}
	if number("GET", key) >= time.Now().Unix() {
		return false
	}
	number("DEL", key)
	return number("SETNX", key, value) == 1
}

// race has C1 and C2 both see that the lock expired: each is stopped before the
// command with which it would take it over. Then C1 goes on, to its end, and C2
// after it. It returns who holds the lock.
func race(t *testing.T, command string, take func(p *redistest.Proxy) bool) (holders int) {
	t.Helper()
	server := redistest.New(t)
	expire(t, server, "lock.foo")
	var seen, done sync.WaitGroup
	seen.Add(2)
	done.Add(2)
	var both [2]chan struct{}
	var held atomic.Int32
	ends := make(chan struct{}, 2)
	for i := range both {
		both[i] = make(chan struct{})
		proxy := redistest.NewProxy(t, server.Addr())
		var once sync.Once
		proxy.OnCommand(func(c redistest.Command) redistest.Action {
			if c.Name() == command {
				once.Do(func() {
					seen.Done()
					<-both[i]
				})
			}
			return redistest.Pass
		})
		go func() {
			defer done.Done()
			if take(proxy) {
				held.Add(1)
			}
			ends <- struct{}{}
		}()
	}
	seen.Wait()
	for i := range both {
		close(both[i])
		<-ends
	}
	done.Wait()
	return int(held.Load())
}

// The race of the Redis documentation: the naive take-over gives two holders,
// GETSET one.
func TestBothSeeItExpired(t *testing.T) {
	t.Parallel()
	if n := race(t, "DEL", func(p *redistest.Proxy) bool { return naive(t, p, "lock.foo") }); n != 2 {
		t.Errorf("DEL and SETNX give %d holders: the race was not run as described", n)
	}
	for deadline := time.Now().Add(patience); ; {
		var late atomic.Bool
		n := race(t, "GETSET", func(p *redistest.Proxy) bool {
			lock, err := open(t, p.URL()).TryLock(t.Context(), "foo")
			if errors.Is(err, redlatch.ErrNoQuorum) { // what it has set is nobody's
				late.Store(true)
			}
			return err == nil && lock.Err() == nil
		})
		if n == 0 && late.Load() && time.Now().Before(deadline) {
			continue
		}
		if n != 1 {
			t.Errorf("GETSET gives %d holders", n)
		}
		return
	}
}

// Many see it expired, in any order: one takes it, or none if the one had no answer in time.
func TestManySeeItExpired(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	const lockers, rounds = 6, 30
	taken := 0
	for round := range rounds {
		name := "foo" + strconv.Itoa(round)
		expire(t, server, "lock."+name)
		var held, late atomic.Int32
		var all sync.WaitGroup
		for range lockers {
			locker := open(t, server.URL())
			all.Go(func() {
				switch _, err := locker.TryLock(t.Context(), name); {
				case err == nil:
					held.Add(1)
				case errors.Is(err, redlatch.ErrNoQuorum):
					late.Add(1)
				}
			})
		}
		all.Wait()
		if n := held.Load(); n > 1 || n == 0 && late.Load() == 0 {
			t.Fatalf("%d of %d hold %s", n, lockers, name)
		}
		taken += int(held.Load())
	}
	if taken == 0 {
		t.Errorf("none of %d was taken", rounds)
	}
}
