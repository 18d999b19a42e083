package interop

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// The Redlock libraries of other languages, by the commands of their sources.

// floatQuorum is the majority of libraries that divide without rounding: 2.5 of 3.
func floatQuorum(nodes []*redistest.Server) float64 { return float64(len(nodes))/2 + 1 }

// redlockRBLock takes a key that is free, if ARGV[3] is yes, and sets one anew that is its own.
const redlockRBLock = `if (redis.call('exists', KEYS[1]) == 0 and ARGV[3] == 'yes') or redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
end`

func redlockRB(allowNew string) step {
	return func(p *commandPeer, s *redistest.Server, ttl time.Duration) (bool, error) {
		reply, err := evalsha(s, redlockRBLock, p.key(), p.id, milliseconds(ttl), allowNew)
		return reply == "OK", err
	}
}

func openRedlockRB(_ *testing.T, nodes []*redistest.Server) peer {
	return &commandPeer{nodes: nodes, set: redlockRB("yes"), extend: redlockRB("yes"), unlock: evalshaUnlock}
}

// openRedlockPy: its source divides by 2, which Python 3 does not round.
func openRedlockPy(_ *testing.T, nodes []*redistest.Server) peer {
	return &commandPeer{nodes: nodes, quorum: floatQuorum(nodes), set: setMilliseconds, unlock: evalUnlock}
}

// openRedlockPHP: its values are PHP's uniqid, which is the time of day in µs.
func openRedlockPHP(_ *testing.T, nodes []*redistest.Server) peer {
	return &commandPeer{nodes: nodes, quorum: floatQuorum(nodes), set: setMilliseconds, unlock: evalUnlock, newID: func() string {
		now := time.Now().UnixMicro()
		return fmt.Sprintf("%08x%05x", now/1e6, now%1e6)
	}}
}

// distLockExtend sets the key whoever has it.
const distLockExtend = `if redis.call('set', KEYS[1], ARGV[1], 'XX', 'PX', ARGV[2]) then
  return 'OK'
else
  return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
end`

// openDistLock: it does not undo a try that failed, and its caller, who may choose the value, does.
func openDistLock(_ *testing.T, nodes []*redistest.Server) peer {
	return &commandPeer{
		nodes: nodes, set: setMilliseconds, unlock: evalshaUnlock,
		extend: func(p *commandPeer, s *redistest.Server, ttl time.Duration) (bool, error) {
			reply, err := evalsha(s, distLockExtend, p.key(), p.id, milliseconds(ttl))
			return reply == "OK", err
		},
		newID: func() string { return base64.StdEncoding.EncodeToString(randomBytes(24)) },
	}
}

// redlockCPPContinue puts a new value in the place of the last one, or of none.
const redlockCPPContinue = `if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end
return redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3], 'nx')`

func openRedlockCPP(_ *testing.T, nodes []*redistest.Server) peer {
	return &commandPeer{
		nodes: nodes, set: setMilliseconds, unlock: evalUnlock, renames: true,
		extend: func(p *commandPeer, s *redistest.Server, ttl time.Duration) (bool, error) {
			reply, err := s.Do("EVAL", redlockCPPContinue, "1", p.key(), p.id, p.next, milliseconds(ttl))
			return reply == "OK", err
		},
		newID: func() string { return fmt.Sprintf("%X", randomBytes(20)) },
	}
}

// openRedlockCS: its values are the bytes of a GUID, and StackExchange.Redis sends its scripts by
// their names.
func openRedlockCS(_ *testing.T, nodes []*redistest.Server) peer {
	return &commandPeer{nodes: nodes, set: setWhole, unlock: evalshaUnlock, newID: func() string { return string(randomBytes(16)) }}
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// openStackExchange is LockTake, LockExtend and LockRelease, on a server without DELEX.
func openStackExchange(_ *testing.T, nodes []*redistest.Server) peer {
	return &commandPeer{
		nodes: nodes, set: setWhole,
		extend: func(p *commandPeer, s *redistest.Server, ttl time.Duration) (bool, error) {
			if ttl%time.Second != 0 {
				return transact(s, p.key(), p.id, "PEXPIRE", p.key(), milliseconds(ttl))
			}
			return transact(s, p.key(), p.id, "EXPIRE", p.key(), fmt.Sprint(int(ttl.Seconds())))
		},
		unlock: func(p *commandPeer, s *redistest.Server, _ time.Duration) (bool, error) {
			return transact(s, p.key(), p.id, "UNLINK", p.key())
		},
	}
}

// transact is a transaction of StackExchange.Redis on the condition that key is value.
func transact(s *redistest.Server, key, value string, command ...string) (bool, error) {
	c, err := s.Dial(context.Background())
	if err != nil {
		return false, err
	}
	defer c.Close()
	if _, err := c.Do("WATCH", key); err != nil {
		return false, err
	}
	found, err := c.Do("GET", key)
	if err != nil {
		return false, err
	}
	if found != value {
		_, err := c.Do("UNWATCH")
		return false, err
	}
	for _, words := range [][]string{{"MULTI"}, command} {
		if _, err := c.Do(words...); err != nil {
			return false, err
		}
	}
	replies, err := c.Do("EXEC")
	return replies != nil, err
}

// What each library's extension does to a lock of ours, and to one that nobody holds any more.
var extensions = []struct {
	name, library string
	open          func(t *testing.T, nodes []*redistest.Server) peer
	// takes: it takes a lock that another holds. revives: it takes one that is free, as if it
	// had been held in between.
	takes, revives bool
}{
	{"extend", "Redlock-rb", openRedlockRB, false, true},
	{"extend_only_if_locked", "Redlock-rb", func(t *testing.T, nodes []*redistest.Server) peer {
		p := openRedlockRB(t, nodes).(*commandPeer)
		p.extend = redlockRB("no")
		return p
	}, false, false},
	{"lock with extend", "Redis::DistLock", openDistLock, true, true},
	{"ContinueLock", "Redlock-cpp", openRedlockCPP, false, true},
	{"LockExtend", "StackExchange.Redis", openStackExchange, false, false},
}

func TestExtensionsOfOthers(t *testing.T) {
	t.Parallel()
	for _, e := range extensions {
		t.Run(strings.ReplaceAll(e.library+" "+e.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			eachFlavor(t, func(t *testing.T, binary string) {
				nodes := servers(t, binary, rowOf(t, e.library).nodes)
				theirs := e.open(t, nodes).(*commandPeer)
				m := &match{nodes, theirs, open(t, nodes, "{name}"), lockName(t), "{name}"}
				prolongs := func(when string, want bool) {
					t.Helper()
					held, err := theirs.prolong(long)
					if err != nil || held != want {
						t.Errorf("%s: they believe that they hold it: %t, %v", when, held, err)
					}
				}
				m.theyAcquire(t, long)
				prolongs("while they hold it", true)
				for _, s := range nodes {
					do(t, s, "DEL", m.key()) // it has run out
				}
				lock, err := m.ours.Lock(within(t, patience), m.name)
				if err != nil {
					t.Fatal(err)
				}
				await(t, "ours is on all nodes", func() bool {
					id := m.holder(t)
					for _, v := range m.values(t) {
						if v != id {
							return false
						}
					}
					return true
				})
				prolongs("while we hold it", e.takes)
				if err := lock.Extend(t.Context(), brief); errors.Is(err, redlatch.ErrLost) != e.takes || err != nil && !e.takes {
					t.Errorf("ours after that: %v", err)
				}
				lock.Unlock(t.Context())
				for _, s := range nodes {
					do(t, s, "DEL", m.key()) // theirs, if they took it
				}
				prolongs("while nobody holds it", e.revives)
				m.theyRelease(t)
			})
		})
	}
}

// rowOf is a library's row of the table.
func rowOf(t *testing.T, name string) library {
	t.Helper()
	for _, l := range libraries {
		if l.name == name {
			return l
		}
	}
	t.Fatalf("%s has no row", name)
	return library{}
}

// The value that StackExchange.Redis's LockQuery finds is all that it needs to release a lock:
// ours is lost then, and we are told.
func TestStackExchangeReleasesWhatItQueried(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		nodes := servers(t, binary, 1)
		name := lockName(t)
		lock, err := open(t, nodes, "{name}").Lock(within(t, patience), name)
		if err != nil {
			t.Fatal(err)
		}
		value, _ := do(t, nodes[0], "GET", name).(string)
		released, err := transact(nodes[0], name, value, "UNLINK", name)
		if err != nil || !released {
			t.Fatalf("released: %t, %v", released, err)
		}
		if err := lock.Extend(t.Context(), brief); !errors.Is(err, redlatch.ErrLost) {
			t.Errorf("ours after that: %v", err)
		}
	})
}
