// Package memory is one voting server in memory, for the tests of programs that lock: it answers
// the steps that clients send as a server does that runs the scripts. Those of package script are
// the definition; a test of internal/sim gives the same random steps to both.
//
// Left out is what no client of a single server sends or sees: the confirm and repair steps, which
// need a second node, and the expiry of counters.
package memory

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
)

// Node is a server. It is safe for concurrent use, and none of its methods blocks.
type Node struct {
	clock func() time.Time
	run   string

	mu sync.Mutex // guards what follows; nothing but clock is called while it is held
	// texts are the keys of deployments, which admission depends on, and scripts the voting scripts
	// that admissions have loaded, by their SHA1.
	texts   map[string]string
	scripts map[string]bool
	// locks are those that were ever asked for, by their keys.
	locks map[string]*lock
	// subscribers are the clients that are told of wake-ups, by their channels.
	subscribers map[string]*subscription
}

// lock is a lock's key, and what lies beside it.
type lock struct {
	// holder is "" where there is no key; else it expires.
	holder  string
	expires int64 // in ms
	counter uint64
	// readers are those who have the key, where readers have it, each until when, in ms.
	readers map[string]int64
	// queue is forgotten when nobody has joined it for a while, at lapses, in ms.
	queue  []place
	lapses int64
	next   next
}

// New returns a node without locks, which reads the time by clock.
func New(clock func() time.Time) *Node {
	var id [20]byte
	rand.Read(id[:])
	return &Node{
		clock: clock, run: hex.EncodeToString(id[:]),
		texts: make(map[string]string), scripts: make(map[string]bool),
		locks: make(map[string]*lock), subscribers: make(map[string]*subscription),
	}
}

// Key is a lock's key that is there.
type Key struct {
	// Holder is the holder id, and Left how long the key stays. Where readers have it, Holder is
	// their marker, and Readers are their own ids.
	Holder  string
	Left    time.Duration
	Readers []string
}

// Keys returns the locks' keys that are there.
func (n *Node) Keys() map[string]Key {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	keys := make(map[string]Key)
	for key := range n.locks {
		if l := n.at(key, now); l.holder != "" {
			k := Key{Holder: l.holder, Left: time.Duration(l.expires-now.ms) * time.Millisecond}
			if _, shared := l.under(); shared {
				k.Readers = slices.Sorted(maps.Keys(l.readers))
			}
			keys[key] = k
		}
	}
	return keys
}

// Delete deletes a lock's key if holder has it, and wakes up who is next in the queue, whose key is that of
// the lock, or for a permit that of all.
func (n *Node) Delete(key, holder, queue string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	l := n.at(key, now)
	if l.holder != holder {
		return
	}
	l.holder = ""
	if q := n.at(queue, now); q.next.noted(now) {
		n.wake(queue, q, now, "", "", true)
	}
}

// Set has holder hold the key for ttl, as one who asks nobody.
func (n *Node) Set(key, holder string, ttl time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	l := n.at(key, now)
	l.holder, l.expires = holder, now.ms+ttl.Milliseconds()
}

// instant is one reading of the clock, as the scripts count: in ms, and in µs.
type instant struct{ ms, us int64 }

func (n *Node) now() instant {
	us := n.clock().UnixMicro()
	return instant{ms: us / 1000, us: us}
}

// at returns the lock, without what has expired. The caller holds n.mu.
func (n *Node) at(key string, now instant) *lock {
	l := n.locks[key]
	if l == nil {
		l = new(lock)
		n.locks[key] = l
	}
	if l.expires < now.ms {
		l.holder, l.readers = "", nil
	}
	if l.lapses < now.ms {
		l.queue = nil
	}
	return l
}

func number(i int64) driver.Reply { return driver.Reply{Kind: driver.Int, Int: i} }
func text(s string) driver.Reply  { return driver.Reply{Kind: driver.Text, Text: s} }

func array(parts ...driver.Reply) driver.Reply {
	return driver.Reply{Kind: driver.Array, Array: parts}
}

// heldBy answers that another has the key.
func (l *lock) heldBy(now instant) driver.Reply {
	return array(text(l.holder), number(l.expires-now.ms))
}

func unknown(what string) error {
	return &driver.ServerError{Text: "ERR unknown command " + strconv.Quote(what) + ": this server is in memory, for tests"}
}

// evalSHA runs a step.
func (n *Node) evalSHA(sha string, keys, args []string) (driver.Reply, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	if sha == script.Releasing.SHA {
		return n.release(keys[0], args, now), nil
	}
	if sha == script.ReleasingShared.SHA {
		return n.releaseShared(keys[0], args, now), nil
	}
	if sha == script.ReleasingAll.SHA {
		return n.releaseAll(keys, args, now), nil
	}
	if sha == script.ReleasingSlot.SHA {
		return n.releaseSlot(keys, args, now), nil
	}
	if !n.scripts[sha] {
		return driver.Reply{}, &driver.ServerError{Text: "NOSCRIPT no such script"}
	}
	switch args[0] {
	case script.Acquire:
		return n.acquire(keys, args, now), nil
	case script.Extend:
		return n.extend(keys, args, now), nil
	case script.ExtendBatch:
		return n.extendBatch(keys, args, now), nil
	case script.AcquireAll:
		return n.acquireAll(keys, args, now), nil
	case script.ExtendAll:
		return n.extendAll(keys, args, now), nil
	case script.AcquireShared:
		return n.acquireShared(keys, args, now), nil
	case script.ExtendShared:
		return n.extendShared(keys, args, now), nil
	case script.Batch:
		return n.batch(keys, args, now), nil
	case script.Slot:
		return n.slot(keys, args, now), nil
	case script.Enqueue, script.EnqueueSlot:
		return n.enqueue(keys, args, now), nil
	}
	return driver.Reply{}, &driver.ServerError{Text: "REDLATCH no such step: " + args[0]}
}

// do executes one of the few commands that a client sends beside the steps.
func (n *Node) do(args []string) (driver.Reply, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	switch {
	case args[0] == "PING":
		return text("PONG"), nil
	case args[0] == "EVAL" && args[1] == script.Inspect.Text:
		return n.inspect(args[3:], now), nil
	case args[0] == "EVAL" && len(args) > 6 && args[6] == script.Admit:
		n.scripts[script.New(args[1]).SHA] = true
		return n.admit(args[3:6], args[6:], now), nil
	case args[0] == "EVAL" && args[2] == "0": // script.Voted
		n.scripts[script.New(args[1]).SHA] = true
		return number(1), nil
	case args[0] == "EVAL" && args[1] == script.Mark.Text:
		if n.said(args[3]) == args[6] {
			n.texts[args[3]] = args[4]
		}
		return number(1), nil
	case args[0] == "GET" && len(args) == 2:
		return n.get(args[1], now), nil
	case args[0] == "EVAL" && args[1] == script.Look.Text:
		var values []driver.Reply
		for _, key := range args[3:] {
			values = append(values, n.get(key, now))
		}
		return array(values...), nil
	case args[0] == "PTTL" && len(args) == 2:
		l := n.at(args[1], now)
		if l.holder == "" {
			return number(-2), nil
		}
		return number(l.expires - now.ms), nil
	}
	return driver.Reply{}, unknown(args[0])
}

// get reads a key of any kind.
func (n *Node) get(key string, now instant) driver.Reply {
	if _, of, ok := strings.Cut(key, "}:next:"); ok {
		if n.at(of, now).next.noted(now) {
			return text("-")
		}
		return driver.Reply{}
	}
	if _, of, ok := strings.Cut(key, "}:token:"); ok {
		if l := n.at(of, now); l.counter > 0 {
			return text(strconv.FormatUint(l.counter, 10))
		}
		return driver.Reply{}
	}
	value := n.texts[key]
	if value == "" {
		value = n.at(key, now).holder
	}
	if value == "" {
		return driver.Reply{}
	}
	return text(value)
}

// inspect answers as inspect.lua: a master that has been up for long, so that it is admitted at
// once.
func (n *Node) inspect(keys []string, now instant) driver.Reply {
	parts := []driver.Reply{text(fmt.Sprintf(
		"redis_version:7.4.0\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\nrole:master\r\nmaster_replid:%[1]s\r\nsecond_repl_offset:-1\r\ntotal_net_repl_input_bytes:0\r\n",
		n.run, int64(365*24*time.Hour/time.Second)))}
	for _, key := range keys {
		parts = append(parts, text(n.texts[key]))
	}
	return array(append(parts, text(strconv.FormatInt(now.ms/1000, 10)))...)
}

// admit answers as admit.lua on a server that has not changed since it was looked at.
func (n *Node) admit(keys, args []string, now instant) driver.Reply {
	if n.texts[keys[1]] != args[3] || n.texts[keys[2]] != args[5] || n.said(keys[0]) != args[6] {
		return number(-1)
	}
	n.texts[keys[0]] = args[1] + fmt.Sprintf(" %016d", now.us)
	n.texts[keys[1]] = args[2]
	if len(args) < 8 { // the quarantine is not off
		delete(n.texts, keys[2])
	}
	return number(1)
}

// said returns what an admission key says, but for the time at its end.
func (n *Node) said(key string) string { return n.texts[key][:max(0, len(n.texts[key])-17)] }

// admitted is what admitted.lua asks, on a server that has always been a master.
func (n *Node) admitted(key, expected string) bool {
	return expected != "" && strings.HasPrefix(n.texts[key], expected+" ")
}
