package admission

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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
	run, repl   int
	started     int64
	skew        int64 // by how much its clock is ahead
	received    int64
	promoted    bool
	flushed     bool
	lagged      bool // it may lack the last writes
	epoch       int64
	data, stale map[uint16]slotData // stale is what its replica has
}

const clusterSlots = 6

// clusterWorld is a Cluster in whole seconds.
type clusterWorld struct {
	rng     *rand.Rand
	now     int64
	ids     int
	masters []*shardServer
	owner   [clusterSlots]int
	a       Agreement
	// expected is what a client compares, for each slot, as it was when it examined it last.
	expected [2][clusterSlots]string
	// truth is until when a lock of a slot runs, and who holds it.
	truth [clusterSlots]struct {
		lock  int
		until int64
	}
	// allAnswer: no master that is asked fails to answer.
	allAnswer bool
	log       func(string, ...any)
	grants    int
}

func newClusterWorld(seed uint64, log func(string, ...any)) *clusterWorld {
	w := &clusterWorld{rng: rand.New(rand.NewPCG(seed, 2)), now: testNow, log: log, a: agreementOf(Agreement{})}
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

func (s *shardServer) server() Server { return Server{text(s.run), text(s.repl), s.received} }

func (w *clusterWorld) held(i int) (held Slots, home uint16) {
	for slot, owner := range w.owner {
		if owner == i {
			held, home = append(held, SlotRange{First: uint16(slot), Last: uint16(slot)}), uint16(slot)
		}
	}
	return held, home
}

// examine decides about a slot, and carries it out.
func (w *clusterWorld) examine(client int, slot uint16, vouched bool) bool {
	i := w.owner[slot]
	s := w.masters[i]
	held, home := w.held(i)
	w.expected[client][slot] = w.a.ID() + " " + text(s.run) + " " + text(s.repl)
	e := Evidence{
		Server: s.server(), Promoted: s.promoted, Flushed: s.flushed, Now: w.clock(s), Vouched: vouched,
		Uptime: time.Duration(max(0, w.now-s.started-1)) * time.Second,
		Shard:  &Shard{Slot: slot, Held: held, Epoch: s.epoch, Masters: 1},
	}
	e.Record, _ = ParseRecord("", s.data[home].record)
	var others []Master
	for j, other := range w.masters {
		held, home := w.held(j)
		if j == i || held == nil {
			continue
		}
		e.Shard.Masters++
		if w.rng.IntN(5) == 0 && !w.allAnswer { // it cannot be asked
			others = append(others, Master{})
			continue
		}
		if other.data[home].record == "" {
			e.Others.None++
		} else {
			e.Others.Same++
		}
		others = append(others, Master{Server: other.server(), Now: w.clock(other), Answered: true})
	}
	e.Came(w.a, s.data[slot].key, others)
	d := Decide(w.a, e)
	w.log("%d: client %d examines slot %d at %d (run %d): outcome %d, %v", w.now, client, slot, i, s.run, d.Outcome, d.Err)
	r := &Record{Nodes: map[string]string{"a": "", "b": "", "c": ""}, MaxTTLMS: w.a.MaxTTL.Milliseconds()}
	if e.Renew(r) && d.Outcome != Refuse && !d.Unread {
		at := s.data[home]
		at.record = r.Text()
		s.data[home] = at
	}
	if d.Outcome != Admit && d.Outcome != Refuse && !d.Unread && e.Shard.Stale {
		at := s.data[slot]
		at.key = "another"
		s.data[slot] = at
	}
	if d.Outcome == Admit {
		at := s.data[slot]
		at.key = fmt.Sprintf("%s %016d", w.expected[client][slot], w.clock(s)*1_000_000)
		s.data[slot] = at
	}
	return d.Outcome == Admit
}

// vote has a client try for the lock of a slot, as the voting script answers.
func (w *clusterWorld) vote(client int, slot uint16) error {
	s := w.masters[w.owner[slot]]
	admitted := func() bool {
		key, expected := s.data[slot].key, w.expected[client][slot]
		return len(key) > 17 && key[:len(key)-17] == expected && expected[len(expected)-40:] == text(s.repl)
	}
	if !admitted() && (!w.examine(client, slot, false) || !admitted()) {
		return nil
	}
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
		at.lock, w.truth[slot].lock = 0, 0
	}
	s.data[slot] = at
	return nil
}

// bump gives master i an epoch of its own that is the largest, as it takes over slots.
func (w *clusterWorld) bump(i int) {
	largest := int64(0)
	for j, s := range w.masters {
		if j != i {
			largest = max(largest, s.epoch)
		}
	}
	if w.masters[i].epoch <= largest {
		w.masters[i].epoch = largest + 1
	}
}

func (w *clusterWorld) event() error {
	slot := uint16(w.rng.IntN(clusterSlots))
	i, to := w.owner[slot], w.rng.IntN(3)
	s := w.masters[i]
	kind := w.rng.IntN(25)
	if kind > 12 {
		return w.vote(w.rng.IntN(2), slot)
	}
	if kind == 5 || kind == 8 {
		w.rest()
	}
	w.log("%d: event %d, slot %d, master %d, other %d", w.now, kind, slot, i, to)
	switch kind {
	case 0, 1: // moved, with its keys
		return w.move(slot, to)
	case 2: // given away without its keys, by a master that lives
		if to != i {
			delete(s.data, slot)
			w.owner[slot] = to
			w.bump(to)
		}
	case 3: // a master dies, and others get its slots without the keys; it comes back empty
		if to != i {
			for other, owner := range w.owner {
				if owner == i {
					w.owner[other] = to
				}
			}
			w.bump(to)
			epoch := s.epoch
			w.masters[i] = w.start(nil)
			w.masters[i].epoch = epoch
		}
	case 4, 5, 6: // restarts: empty, as the replica has it, with all
		data := []map[uint16]slotData{nil, s.stale, s.data}[kind-4]
		w.masters[i] = w.start(data)
		w.masters[i].epoch, w.masters[i].lagged = s.epoch, kind == 5
	case 7: // its replica, which may lag, takes its place
		w.promote(i)
	case 8: // and back again: one process, with what it had replicated
		s.data, s.repl, s.promoted, s.received, s.lagged = maps.Clone(s.stale), w.id(), true, s.received+100, true
		w.bump(i)
	case 9: // FLUSHALL
		s.data, s.flushed = make(map[uint16]slotData), true
	case 10:
		w.replicate()
	case 11: // an operator vouches, who knows that no lock is held
		held := slices.ContainsFunc(w.truth[:], func(t struct {
			lock  int
			until int64
		}) bool {
			return t.lock != 0 && t.until > w.now
		})
		if !held {
			w.examine(0, slot, true)
		}
	case 12: // moved and used; the replica that lacks that takes the place, and the slot moves on, or back
		if err := w.move(slot, to); err != nil {
			return err
		}
		w.replicate()
		if err := w.vote(0, slot); err != nil {
			return err
		}
		w.promote(to)
		w.pass()
		return w.move(slot, w.rng.IntN(3))
	}
	return nil
}

// move moves a slot with its keys. Where its master may lack the last writes, a client uses the slot before: else there is
// only a word for it.
func (w *clusterWorld) move(slot uint16, to int) error {
	from := w.masters[w.owner[slot]]
	if from == w.masters[to] {
		return nil
	}
	if from.lagged {
		w.allAnswer = true
		err := w.vote(0, slot)
		if w.allAnswer = false; err != nil {
			return err
		}
	}
	w.masters[to].data[slot] = from.data[slot]
	delete(from.data, slot)
	w.owner[slot] = to
	w.bump(to)
	return nil
}

// promote has a master's replica, which may lag, take its place.
func (w *clusterWorld) promote(i int) {
	w.rest()
	s := w.masters[i]
	w.masters[i] = w.start(s.stale)
	w.masters[i].started = s.started - int64(w.rng.IntN(50))
	w.masters[i].promoted, w.masters[i].received, w.masters[i].epoch, w.masters[i].lagged = true, 100, s.epoch, true
	w.bump(i)
}

// rest waits for as long as whole seconds may hide whether a master lost anything before or after the last vote: there is only
// a word for that.
func (w *clusterWorld) rest() { w.now += 3 }

// replicate has all replicas catch up.
func (w *clusterWorld) replicate() {
	for _, s := range w.masters {
		s.stale = maps.Clone(s.data)
	}
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
