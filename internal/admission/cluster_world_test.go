package admission

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"
)

// slotData is what one slot has on one process.
type slotData struct {
	key    string // the admission key
	record string // the master's, where this is its last slot
	lock   int    // who holds the lock, 0 for nobody
	until  int64
}

// shardServer is one process of a Cluster, as votes and inspections see it.
type shardServer struct {
	run, repl int
	started   int64
	skew      int64 // by how much its clock is ahead
	statistics
	promoted    bool
	scripts     bool // it has the voting script
	lagged      bool // it may lack the last writes
	epoch       int64
	data, stale map[uint16]slotData // stale is what its replica has
	former      *shardServer        // the process that was the master before, nil for none
}

const clusterSlots = 6

// clusterWorld is a Cluster in whole seconds.
type clusterWorld struct {
	rng     *rand.Rand
	now     int64
	ids     int
	masters []*shardServer
	owner   [clusterSlots]int
	// moving is which master is to have the slot, by its number and one more, 0 where the slot is not being moved.
	moving [clusterSlots]int
	// unused: nobody has used the slot since its master got it.
	unused [clusterSlots]bool
	// amid: most of what happens happens to slots that are being moved.
	amid bool
	a    Agreement
	// expected is what a client compares, for each slot, as it was when it looked at it last.
	expected [2][clusterSlots]string
	// truth is until when a lock of a slot runs, and who holds it.
	truth [clusterSlots]struct {
		lock  int
		until int64
	}
	// stalled are the looks of clients that have not yet done what follows from them.
	stalled []*slotLook
	// allAnswer: no master that is asked fails to answer, and no client stalls.
	allAnswer bool
	log       func(string, ...any)
	grants    int
}

func newClusterWorld(seed uint64, log func(string, ...any)) *clusterWorld {
	w := &clusterWorld{rng: rand.New(rand.NewPCG(seed, 2)), now: testNow, log: log, amid: seed%2 == 0, a: agreementOf(Agreement{})}
	for i := range 3 {
		s := w.start(nil)
		s.started -= int64(w.rng.IntN(300))
		s.epoch = int64(i + 1)
		w.masters = append(w.masters, s)
	}
	for slot := range w.owner {
		w.owner[slot] = slot / 2
	}
	return w
}

func (w *clusterWorld) id() int { w.ids++; return w.ids }

func (w *clusterWorld) start(data map[uint16]slotData) *shardServer {
	if data == nil {
		data = make(map[uint16]slotData)
	}
	return &shardServer{run: w.id(), repl: w.id(), started: w.now, skew: w.rng.Int64N(1000), data: maps.Clone(data), stale: maps.Clone(data)}
}

// clock is what the server takes the time to be.
func (w *clusterWorld) clock(s *shardServer) int64 { return w.now + s.skew }

func (s *shardServer) server() Server { return Server{text(s.run), text(s.repl), s.receivedBytes()} }

func (w *clusterWorld) held(i int) (held Slots, home uint16) {
	for slot, owner := range w.owner {
		if owner == i {
			held, home = append(held, SlotRange{First: uint16(slot), Last: uint16(slot)}), uint16(slot)
		}
	}
	return held, home
}

// vote has a client try for the lock of a slot, as the voting script answers. While the slot is being moved, it answers
// TRYAGAIN: some of a vote's keys are not there.
func (w *clusterWorld) vote(client int, slot uint16) error {
	if w.moving[slot] != 0 {
		w.examine(client, slot)
		return nil
	}
	s := w.masters[w.owner[slot]]
	admitted := func() bool {
		key, expected := s.data[slot].key, w.expected[client][slot]
		return s.scripts && len(key) > 17 && key[:len(key)-17] == expected && expected[len(expected)-40:] == text(s.repl)
	}
	if !admitted() {
		w.examine(client, slot)
		if !admitted() {
			return nil
		}
	}
	w.unused[slot] = false
	at := s.data[slot]
	at.key = fmt.Sprintf("%s %016d", w.expected[client][slot], w.clock(s)*1_000_000)
	if at.lock == 0 || at.until <= w.now {
		if t := w.truth[slot]; t.lock != 0 && t.until > w.now {
			return fmt.Errorf("at %d slot %d is granted at run %d, while it is held until %d", w.now, slot, s.run, t.until)
		}
		at.lock, at.until = w.id(), w.now+int64(w.a.MaxTTL/time.Second)
		w.truth[slot].lock, w.truth[slot].until = at.lock, at.until
		w.grants++
		w.log("%d: slot %d granted at run %d", w.now, slot, s.run)
	} else if at.lock == w.truth[slot].lock && w.rng.IntN(3) == 0 { // released
		at.lock, at.until, w.truth[slot].lock = 0, 0, 0
	}
	s.data[slot] = at
	return nil
}

// isHeld reports whether a lock runs.
func (w *clusterWorld) isHeld() bool {
	for _, t := range w.truth {
		if t.lock != 0 && t.until > w.now {
			return true
		}
	}
	return false
}

// For any sequence of what befalls a Cluster: no lock is granted in a slot while one of before
// runs that was lost.
func TestNoSlotVotesWhereALockWasLost(t *testing.T) {
	inWorlds(t, "locks", 400, func(seed uint64, log func(string, ...any)) randomWorld { return newClusterWorld(seed, log) })
}

func (w *clusterWorld) pass() {
	if w.rng.IntN(2) == 0 {
		w.now += int64(w.rng.ExpFloat64() * 8)
	}
}

func (w *clusterWorld) count() int { return w.grants }
