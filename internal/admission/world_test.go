package admission

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// keys are what a deployment has on a server.
type keys struct {
	admission    string // agreement, run and replication id, as a vote compares them; or a mark
	record, note string
}

// server is a master as a vote and an inspection see it, in whole seconds.
type server struct {
	data      map[string]keys // by deployment
	behind    map[string]keys // what a crash without fsync or a failback goes back to
	run, repl int
	started   int64
	statistics
	promoted bool
	scripts  map[string]bool // the voting scripts that it has, by deployment
	fsync    bool            // what is answered is on disk
	grants   []grant
	// former is the process that was the master before, and may be it again; nil for none.
	former *server
}

// statistics are what a server counts, and what a reset of them leaves.
type statistics struct {
	received int64 // bytes, and times that it was told whom to follow
	flushes  int   // of all keys, by FLUSHALL and FLUSHDB
	dropped  bool  // its scripts, by SCRIPT FLUSH
	cleared  bool  // the statistics, at least once
}

// receivedBytes, flushed and compared are as internal/node reads them from INFO; compared is what looked.lua compares.
func (s *statistics) receivedBytes() int64 {
	if s.cleared {
		return -1
	}
	return s.received
}
func (s *statistics) flushed() bool    { return s.flushes > 0 || s.cleared }
func (s *statistics) compared() string { return fmt.Sprintf("%d %t", s.flushes, s.cleared) }

// clear is CONFIG RESETSTAT. The server counts it afterwards, so that there always is one.
func (s *statistics) clear() { *s = statistics{cleared: true} }

// grant is a lock given away, of the longest TTL that its agreement allows.
type grant struct {
	deployment, agreement string
	noQuarantine          bool
	until                 int64
	// lost: the server does not know of it any more. orphan: nor does another know of the
	// agreement that it was given under, or a majority knows of none, or the others do not agree:
	// it has only its clients' word (docs/restarts.md).
	lost, orphan bool
	// changed: it is of before an operator's change, which a server that loses its keys
	// within the quarantine of the change does not know of any more, unless another tells it of locks of that ttl.
	changed bool
	ttl     time.Duration
}

// forgot reports whether a lock that the server has forgotten still runs.
func (s *server) forgot(now int64) bool {
	return slices.ContainsFunc(s.grants, func(g grant) bool { return g.lost && g.until > now })
}

type world struct {
	rng     *rand.Rand
	now     int64
	ids     int
	servers []*server
	clients []Agreement
	// expected is what client c compares on server i: as it was when it looked at it last.
	expected [][]string
	// stalled are the looks of clients that have not yet done what follows from them.
	stalled []*look
	log     func(format string, args ...any)
	votes   int
	// durable: nodes keep the word of those who say that they are.
	durable bool
}

func newWorld(seed uint64, log func(string, ...any)) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), now: testNow, log: log, durable: seed%4 == 0}
	for range 3 {
		w.servers = append(w.servers, w.start(nil))
		w.servers[len(w.servers)-1].started -= int64(w.rng.IntN(300))
	}
	for range 5 {
		a := agreementOf(Agreement{})
		a.MaxTTL = []time.Duration{2 * time.Second, 30 * time.Second, 2 * time.Minute}[w.rng.IntN(3)]
		a.NoQuarantine = w.rng.IntN(5) == 0
		a.Durable = w.durable && !a.NoQuarantine && w.rng.IntN(2) == 0
		if w.rng.IntN(6) == 0 {
			a.Deployment = "another"
		}
		w.clients = append(w.clients, a)
		w.expected = append(w.expected, make([]string, 3))
	}
	return w
}

func (w *world) id() int { w.ids++; return w.ids }

func (w *world) start(data map[string]keys) *server {
	s := &server{data: maps.Clone(data), run: w.id(), repl: w.id(), started: w.now, scripts: make(map[string]bool), fsync: w.durable || w.rng.IntN(2) == 0}
	if s.data == nil {
		s.data = make(map[string]keys)
	}
	s.behind = maps.Clone(s.data)
	return s
}

func text(id int) string { return fmt.Sprintf("%040d", id) }

func (s *server) server() Server { return Server{text(s.run), text(s.repl), s.receivedBytes()} }

func (w *world) expect(a Agreement, i int) string {
	return a.ID() + " " + text(w.servers[i].run) + " " + text(w.servers[i].repl)
}

// vote has client c ask server i, as the voting script answers.
func (w *world) vote(c, i int) error {
	a, s := w.clients[c], w.servers[i]
	if w.expected[c][i] == "" || w.rng.IntN(20) == 0 { // it is its first, or it has a new connection
		w.expected[c][i] = w.expect(a, i)
	}
	admitted := func() bool {
		k := s.data[a.Deployment].admission
		return s.scripts[a.Deployment] && k == w.expected[c][i] && k[len(k)-40:] == text(s.repl)
	}
	if !admitted() {
		w.examine(c, i)
		if !admitted() {
			return nil
		}
	}
	w.votes++
	s.grants = slices.DeleteFunc(s.grants, func(g grant) bool { return g.until <= w.now })
	for _, g := range s.grants {
		switch {
		case !g.lost || g.deployment != a.Deployment || g.noQuarantine && a.NoQuarantine:
		case g.orphan && g.agreement != a.ID():
		default:
			return fmt.Errorf("at %d client %d (%s) votes at %d, which has forgotten a lock that runs until %d: %+v", w.now, c, a, i, g.until, g)
		}
	}
	s.grants = append(s.grants, grant{deployment: a.Deployment, agreement: a.ID(), noQuarantine: a.NoQuarantine, ttl: a.MaxTTL, until: w.now + int64(a.MaxTTL/time.Second)})
	return nil
}

// lose notes that server i goes back to what it was.
func (w *world) lose(i int) {
	for j := range w.servers[i].grants {
		if g := &w.servers[i].grants[j]; !g.lost {
			g.lost, g.orphan = true, false
		}
	}
	for k, s := range w.servers {
		for j := range s.grants {
			g := &s.grants[j]
			if !g.lost || g.orphan || g.until <= w.now {
				continue // an orphan for good, or of no concern
			}
			if g.changed {
				continue
			}
			none, same, others := 0, 0, 0
			for l, other := range w.servers {
				r, _ := ParseRecord("", other.data[g.deployment].record)
				switch {
				case r == nil || !other.server().hasBeen(r.Server, other.promoted):
					none++ // or an old one
				case l != k && r.Agreement(g.deployment).ID() == g.agreement:
					same++
				case l != k:
					others++
				}
			}
			g.orphan = none >= 2 || same == 0 || others > 0
		}
	}
	w.tell()
}

// tell finds out which locks of before a change nobody tells of any more.
func (w *world) tell() {
	for i, s := range w.servers {
		for j := range s.grants {
			if g := &s.grants[j]; g.lost && g.changed && !w.told(i, g) {
				g.orphan = true
			}
		}
	}
}

// told reports whether another server than i tells of locks of before a change that last for as long as g. It can be asked,
// in these worlds.
func (w *world) told(i int, g *grant) bool {
	for l, other := range w.servers {
		r, _ := ParseRecord("", other.data[g.deployment].record)
		if l != i && r != nil && !r.NoQuarantine && r.FormerMS >= g.ttl.Milliseconds() {
			return true
		}
	}
	return false
}

// For any sequence of clients with any settings, faults and operators: no client votes at a
// node that has forgotten a lock which still runs, unless an operator vouched for it.
func TestNobodyVotesWhereALockWasForgotten(t *testing.T) {
	inWorlds(t, "votes", 300, func(seed uint64, log func(string, ...any)) randomWorld { return newWorld(seed, log) })
}

func (w *world) pass() {
	if w.rng.IntN(3) == 0 {
		w.now += int64(w.rng.ExpFloat64() * 20)
	}
}

func (w *world) count() int { return w.votes }
