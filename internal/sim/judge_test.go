package sim

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/script"
)

// leaseMade is a lease whose story is made up.
type leaseMade struct {
	id         string
	until, end clock.Instant
	token      uint64
	err        error
}

func (l *leaseMade) Deadline() clock.Instant { return l.until }
func (l *leaseMade) End() clock.Instant      { return l.end }
func (l *leaseMade) Token() uint64           { return l.token }
func (l *leaseMade) Err() error              { return l.err }
func (l *leaseMade) HolderID() string        { return l.id }

// made is a world of three nodes and two machines in which nothing happens but what a test
// makes up.
type made struct {
	*World
	a, b *Machine
}

// makeUp returns a world, and has the test end it. It is called in a bubble.
func makeUp(t *testing.T) *made {
	w := New(1, None)
	t.Cleanup(w.End)
	w.Judge.NodeTimeout, w.Judge.Quarantine = 50*time.Millisecond, 9*time.Second
	for range 3 {
		w.NewNode(Always, false, 1, 0, time.Hour)
	}
	ways := slices.Repeat([]Network{{Delay: 100 * time.Microsecond, Jitter: 100 * time.Microsecond}}, 3)
	return &made{w, w.NewMachine(1, 0, ways), w.NewMachine(1, 0, ways)}
}

// holderID is an id of an attempt by the call with that label.
func holderID(label string) string { return strings.Repeat("A", 26) + ".1." + label }

// grant has nodes, all if none is named, give the key of lock-a to the call with that label for
// ttl.
func (m *made) grant(label string, ttl time.Duration, nodes ...int) string {
	id := holderID(label)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, n := range m.nodes {
		if len(nodes) > 0 && !slices.Contains(nodes, i) {
			continue
		}
		before := n.holdersOf("lock-a")
		n.server.Exec([]string{"SET", "lock-a", id, "PX", strconv.FormatInt(ttl.Milliseconds(), 10)})
		n.follow("lock-a", []string{script.Acquire, id}, before, holders{value: id})
		n.occupy("lock-a")
	}
	return id
}

// tries has a call begin an attempt now.
func (m *made) tries(label string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attempts[label] = attempt{id: holderID(label), at: m.Now()}
}

// free has all nodes delete the key of lock-a.
func (m *made) free() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.nodes {
		n.server.Exec([]string{"DEL", "lock-a"})
		n.occupy("lock-a")
	}
}

// trouble is something wrong with all ways now.
func (m *made) trouble() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.a.disturb(m.Now())
	m.b.disturb(m.Now())
}

// lose has a node lose its data.
func (m *made) lose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes[0].lose()
}

// hold has a machine hold lock-a for left from now.
func (m *made) hold(on *Machine, label string, token uint64, left time.Duration) *Holding {
	return m.Judge.Acquired(on, "lock-a", label, m.lease(on, label, token, left))
}

// read has it do so as a reader.
func (m *made) read(on *Machine, label string, token uint64, left time.Duration) *Holding {
	return m.Judge.AcquiredShared(on, "lock-a", label, m.lease(on, label, token, left))
}

func (m *made) lease(on *Machine, label string, token uint64, left time.Duration) *leaseMade {
	until := on.Clock().Now().Add(left)
	return &leaseMade{id: holderID(label), until: until, end: until, token: token}
}

// TestJudge has the judge look at histories that are made up: the first of each rule breaks it,
// the others come near and do not.
func TestJudge(t *testing.T) {
	const ttl = 2 * time.Second
	// runOut is a lock that the library extends, and that ran out all the same.
	runOut := func(m *made, meanwhile func(h *Holding)) {
		m.grant("client1-0-0-1", 2*ttl)
		h := m.hold(m.a, "client1-0-0-1", 1, ttl)
		h.Renews(ttl, 10*ttl)
		time.Sleep(ttl / 2)
		meanwhile(h)
		time.Sleep(ttl/2 + time.Millisecond)
		h.Lost()
	}
	// runsOut is a lock that nobody extends, and whose holder is told late that it ran out.
	runsOut := func(m *made, late time.Duration) {
		m.grant("client1-0-0-1", 2*ttl)
		h := m.hold(m.a, "client1-0-0-1", 1, ttl)
		time.Sleep(ttl + time.Millisecond + late)
		h.Lost()
	}
	// over is a lock that has run out when its holder gets it, and says so.
	over := func(m *made, left time.Duration) {
		l := m.lease(m.a, "client1-0-0-1", 1, left)
		l.err = errors.New("lost")
		m.Judge.Acquired(m.a, "lock-a", "client1-0-0-1", l)
	}
	ended := func(m *made, err error, meanwhile func()) {
		m.grant("client1-0-0-1", ttl)
		h := m.hold(m.a, "client1-0-0-1", 1, ttl)
		time.Sleep(time.Millisecond)
		meanwhile()
		h.Ended()
		h.Unlocked(err)
	}
	wait := func(m *made, free, meanwhile func()) {
		m.grant("client2-0-0-1", 30*time.Second)
		w := m.Judge.Waits("lock-a", "client1-0-0-1")
		time.Sleep(time.Second)
		free()
		m.free()
		time.Sleep(time.Second)
		meanwhile()
		w.Over()
	}
	turns := func(m *made, hold time.Duration, order string) {
		turns := NewTurns(m.Judge)
		turns.Settle, turns.Longest = 10*time.Millisecond, 10*time.Millisecond
		of := map[rune]*Turn{'a': turns.Add("a"), 'b': turns.Add("b"), 'c': turns.Add("c")}
		for _, c := range "abc" {
			turns.Comes(of[c])
		}
		for _, c := range order {
			time.Sleep(hold)
			turns.Serves(of[c])
			turns.Comes(of[c])
		}
	}
	for _, test := range []struct {
		name, rule string // the rule is "" where nothing is broken
		story      func(m *made)
	}{
		{"two holders", "mutual exclusion", func(m *made) {
			m.hold(m.a, "client1-0-0-1", 1, time.Second)
			m.hold(m.b, "client2-0-0-1", 2, time.Second)
		}},
		{"one after the other", "", func(m *made) {
			m.hold(m.a, "client1-0-0-1", 1, time.Second).Ended()
			m.hold(m.b, "client2-0-0-1", 2, time.Second)
		}},
		{"two holders, when a clock has been stepped", "", func(m *made) {
			m.Judge.Outlaw = true
			m.hold(m.a, "client1-0-0-1", 1, time.Second)
			m.hold(m.b, "client2-0-0-1", 2, time.Second)
		}},
		{"a holder beside one of another library", "mutual exclusion", func(m *made) {
			m.Judge.ForeignHolds("lock-a", "foreign")
			m.hold(m.a, "client1-0-0-1", 1, time.Second)
		}},
		{"one of another library beside a holder", "mutual exclusion", func(m *made) {
			m.hold(m.a, "client1-0-0-1", 1, time.Second)
			m.Judge.ForeignHolds("lock-a", "foreign")
		}},
		{"a holder beside one of another library, when a clock has been stepped", "", func(m *made) {
			m.Judge.Outlaw = true
			m.Judge.ForeignHolds("lock-a", "foreign")
			m.hold(m.a, "client1-0-0-1", 1, time.Second)
		}},
		{"one after one of another library", "", func(m *made) {
			m.Judge.ForeignHolds("lock-a", "foreign")
			m.Judge.ForeignOver("lock-a", "foreign")
			m.hold(m.a, "client1-0-0-1", 1, time.Second)
		}},
		{"run out, and held again", "a lapsed lock is not resurrected", func(m *made) {
			lease := m.lease(m.a, "client1-0-0-1", 1, time.Second)
			m.Judge.Acquired(m.a, "lock-a", "client1-0-0-1", lease)
			time.Sleep(2 * time.Second)
			lease.err = errors.New("lost")
			m.Judge.Look("lock-a")
			lease.until = m.a.Clock().Now().Add(time.Second)
			m.Judge.Look("lock-a")
		}},
		{"run out, and says that it is held", "a holder knows", func(m *made) {
			m.hold(m.a, "client1-0-0-1", 1, time.Second)
			time.Sleep(2 * time.Second)
			m.Judge.Look("lock-a")
		}},
		{"run out, and says that it is held until it ends", "a holder knows", func(m *made) {
			h := m.hold(m.a, "client1-0-0-1", 1, time.Second)
			time.Sleep(time.Second + time.Millisecond)
			h.Ended()
		}},
		{"run out when it is acquired", "a holder knows", func(m *made) {
			time.Sleep(time.Second)
			m.tries("client1-0-0-1")
			over(m, 0)
		}},
		{"run out when it is acquired, by a process that was stopped", "", func(m *made) {
			time.Sleep(time.Second)
			m.tries("client1-0-0-1")
			m.a.Pause(time.Second, false)
			time.Sleep(time.Second + time.Millisecond)
			over(m, -time.Millisecond)
		}},
		{"run out while its process is stopped", "", func(m *made) {
			m.hold(m.a, "client1-0-0-1", 1, time.Second)
			m.a.Pause(3*time.Second, false)
			time.Sleep(2 * time.Second)
			m.Judge.Look("lock-a")
		}},
		{"readers together", "", func(m *made) {
			m.read(m.a, "client1-0-0-1", 1, time.Second)
			m.read(m.b, "client2-0-0-1", 1, time.Second)
		}},
		{"a writer beside a reader", "mutual exclusion", func(m *made) {
			m.read(m.a, "client1-0-0-1", 1, time.Second)
			m.hold(m.b, "client2-0-0-1", 2, time.Second)
		}},
		{"a reader beside a writer and another reader", "mutual exclusion", func(m *made) {
			m.read(m.a, "client1-0-0-1", 2, time.Second).Ended()
			m.hold(m.a, "client1-0-0-2", 3, time.Second)
			m.read(m.b, "client2-0-0-1", 4, time.Second)
		}},
		{"a reader with a writer's token", "token order", func(m *made) {
			m.hold(m.a, "client1-0-0-1", 1, time.Second).Ended()
			m.read(m.b, "client2-0-0-1", 1, time.Second)
		}},
		{"a writer with a smaller token than a reader's", "token order", func(m *made) {
			m.read(m.a, "client1-0-0-1", 7, time.Second).Ended()
			m.hold(m.b, "client2-0-0-1", 6, time.Second)
		}},
		{"a reader with a smaller token than a reader's", "", func(m *made) {
			m.read(m.a, "client1-0-0-1", 7, time.Second).Ended()
			m.read(m.b, "client2-0-0-1", 6, time.Second)
		}},

		{"two holders of two slots, and of the lock", "", func(m *made) {
			m.Judge.AcquiredPermit(m.a, "lock-a", 0, 2, "client1-0-0-1", m.lease(m.a, "client1-0-0-1", 1, time.Second))
			m.Judge.AcquiredPermit(m.b, "lock-a", 1, 2, "client2-0-0-1", m.lease(m.b, "client2-0-0-1", 1, time.Second))
			m.hold(m.b, "client2-0-0-2", 1, time.Second)
		}},
		{"two holders of one slot", "mutual exclusion", func(m *made) {
			m.Judge.AcquiredPermit(m.a, "lock-a", 1, 2, "client1-0-0-1", m.lease(m.a, "client1-0-0-1", 1, time.Second))
			m.Judge.AcquiredPermit(m.b, "lock-a", 1, 3, "client2-0-0-1", m.lease(m.b, "client2-0-0-1", 2, time.Second))
		}},
		{"a slot with a smaller token than before", "token order", func(m *made) {
			m.Judge.AcquiredPermit(m.a, "lock-a", 1, 2, "client1-0-0-1", m.lease(m.a, "client1-0-0-1", 7, time.Second)).Ended()
			m.Judge.AcquiredPermit(m.b, "lock-a", 1, 2, "client2-0-0-1", m.lease(m.b, "client2-0-0-1", 6, time.Second))
		}},
		{"a slot that is none of k", "a permit is one of k", func(m *made) {
			m.Judge.AcquiredPermit(m.a, "lock-a", 2, 2, "client1-0-0-1", m.lease(m.a, "client1-0-0-1", 1, time.Second))
		}},

		{"a token twice, long after", "token order", func(m *made) {
			for i := range uint64(100) {
				m.hold(m.a, "client1-0-0-1", 1+i, time.Second).Ended()
				time.Sleep(time.Millisecond)
			}
			m.hold(m.b, "client2-0-0-1", 1, time.Second)
		}},
		{"a smaller token", "token order", func(m *made) {
			m.hold(m.a, "client1-0-0-1", 7, time.Second).Ended()
			m.hold(m.b, "client2-0-0-1", 6, time.Second)
		}},
		{"tokens in order", "", func(m *made) {
			for i := range uint64(100) {
				m.hold(m.a, "client1-0-0-1", 1+i, time.Second).Ended()
			}
		}},

		{"lost while all have it", "a loss is true", func(m *made) {
			m.grant("client1-0-0-1", 2*ttl)
			m.hold(m.a, "client1-0-0-1", 1, ttl).Lost()
		}},
		{"lost by two of three", "", func(m *made) {
			id := m.grant("client1-0-0-1", 2*ttl)
			h := m.hold(m.a, "client1-0-0-1", 1, ttl)
			m.mu.Lock()
			for _, n := range m.nodes[:2] {
				n.server.Exec([]string{"DEL", "lock-a"})
				n.follow("lock-a", []string{script.Extend, id}, holders{value: id}, holders{})
			}
			m.mu.Unlock()
			h.Lost()
		}},
		{"run out though nothing was wrong", "a loss has a reason", func(m *made) { runOut(m, func(*Holding) {}) }},
		{"run out after a fault", "", func(m *made) { runOut(m, func(*Holding) { m.trouble() }) }},
		{"run out after a fault of one node", "a loss has a reason", func(m *made) {
			runOut(m, func(*Holding) { m.nodes[1].StepWall(time.Millisecond) })
		}},
		{"run out and nobody was to extend it", "", func(m *made) { runOut(m, func(h *Holding) { h.Renews(0, 0) }) }},
		{"run out at the end of what it is extended for", "", func(m *made) { runOut(m, func(h *Holding) { h.Renews(ttl, ttl) }) }},
		{"told when it runs out", "", func(m *made) { runsOut(m, 0) }},
		{"told long after it ran out", "a loss is told in time", func(m *made) { runsOut(m, ttl) }},
		{"given up long after it ran out, and not told", "a loss is told in time", func(m *made) {
			h := m.hold(m.a, "client1-0-0-1", 1, ttl)
			time.Sleep(2 * ttl)
			h.Ended()
		}},
		{"told when it was given up", "", func(m *made) {
			h := m.hold(m.a, "client1-0-0-1", 1, ttl)
			time.Sleep(ttl - time.Millisecond)
			h.Ended()
			time.Sleep(ttl)
			h.Lost()
		}},
		{"told when its process goes on", "", func(m *made) {
			m.a.Pause(2*ttl, false)
			runsOut(m, ttl)
		}},
		{"told long after its process went on", "a loss is told in time", func(m *made) {
			m.a.Pause(2*ttl, false)
			runsOut(m, 2*ttl)
		}},

		{"nothing there, it is told, and nothing was wrong", "a release says what it found", func(m *made) {
			ended(m, errors.New("no quorum"), func() {})
		}},
		{"nothing there, it is told, after a fault", "", func(m *made) { ended(m, errors.New("no quorum"), m.trouble) }},
		{"released", "", func(m *made) { ended(m, nil, func() {}) }},

		{"a wait for nothing", "a wait has a cause", func(m *made) { wait(m, func() {}, func() {}) }},
		{"a wait after a fault", "", func(m *made) { wait(m, m.trouble, func() {}) }},
		{"a wait for another", "", func(m *made) {
			wait(m, func() {}, func() { m.grant("client2-0-0-2", time.Second, 1) })
		}},
		{"a wait for what expires", "", func(m *made) {
			w := m.Judge.Waits("lock-a", "client1-0-0-1")
			m.grant("client2-0-0-1", 3*time.Second, 2)
			time.Sleep(3*time.Second + 100*time.Millisecond)
			w.Over()
		}},

		{"refused when all is well", "all nodes vote in the end", func(m *made) {
			time.Sleep(time.Second)
			m.lose()
			time.Sleep(m.Judge.Quarantine + 2*time.Second + recovery + time.Second)
			m.Judge.Failed("lock-a", "client1-0-0-1", m.Now(), errors.New("nodes not admitted"))
		}},
		{"refused during a quarantine", "", func(m *made) {
			time.Sleep(time.Second)
			m.lose()
			time.Sleep(m.Judge.Quarantine)
			m.Judge.Failed("lock-a", "client1-0-0-1", m.Now(), errors.New("nodes not admitted"))
		}},

		{"a key that is extended when its holder is dead", "no orphan", func(m *made) {
			id := m.grant("client1-0-0-1", ttl)
			m.a.Kill()
			for range 3 {
				time.Sleep(ttl / 2)
				m.grant("client1-0-0-1", ttl)
				m.mu.Lock()
				m.nodes[0].prolong(id, m.Now())
				m.mu.Unlock()
			}
			for _, orphan := range m.Orphans([]string{"lock-a"}, ttl) {
				m.Judge.Condemn("no orphan: %s", orphan)
			}
		}},
		{"a key of a dead holder that was on its way", "", func(m *made) {
			id := holderID("client1-0-0-1")
			m.a.Kill()
			dead := m.Now()
			time.Sleep(2 * ttl)
			m.grant("client1-0-0-1", ttl)
			m.mu.Lock()
			for _, n := range m.nodes {
				n.prolong(id, dead)
			}
			m.mu.Unlock()
			time.Sleep(ttl / 2)
			for _, orphan := range m.Orphans([]string{"lock-a"}, ttl) {
				m.Judge.Condemn("no orphan: %s", orphan)
			}
		}},

		{"never in turn", "fair", func(m *made) { turns(m, 10*time.Millisecond, "abababab") }},
		{"too often in a row", "fair", func(m *made) { turns(m, 10*time.Millisecond, strings.Repeat("a", 30)) }},
		{"in turn", "", func(m *made) { turns(m, 10*time.Millisecond, strings.Repeat("aabbcc", 10)) }},
		{"in turn, and slowly", "the longest wait", func(m *made) { turns(m, time.Minute, "abc") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := makeUp(t)
				test.story(m)
				verdicts := m.Judge.Verdicts()
				switch {
				case test.rule == "" && len(verdicts) > 0:
					t.Errorf("condemned: %s", verdicts[0])
				case test.rule != "" && len(verdicts) == 0:
					t.Errorf("not condemned, though it breaks %q", test.rule)
				case test.rule != "" && !strings.HasPrefix(verdicts[0], test.rule+":"):
					t.Errorf("condemned by another rule than %q: %s", test.rule, verdicts[0])
				}
			})
		})
	}
}

// What a release or an extension answers is what the node had.
func TestJudgeOfAnswers(t *testing.T) {
	for _, test := range []struct {
		step         string
		before, want string
		granted      bool
		broken       bool
	}{
		{release, "mine", "mine", true, false},
		{release, "mine", "mine", false, true},
		{release, "", "mine", false, false},
		{release, "", "mine", true, true},
		{script.Extend, "mine", "mine", true, false},
		{script.Extend, "other", "mine", true, true},
		{script.Extend, "other", "mine", false, false},
	} {
		if got := untruthful(test.step, test.want, holders{value: test.before}, test.granted); got != test.broken {
			t.Errorf("%+v: %t", test, got)
		}
	}
}
