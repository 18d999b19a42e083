package admission

import (
	"maps"
	"slices"
	"strings"
)

func (w *clusterWorld) event() error {
	slot := uint16(w.rng.IntN(clusterSlots))
	i, to := w.owner[slot], w.rng.IntN(3)
	s := w.masters[i]
	kind := w.rng.IntN(34)
	switch {
	case kind == 20:
		kind = 12
	case kind < 18 && w.amid && w.rng.IntN(4) > 0:
		kind = [...]int{0, 4, 9, 16, 16, 20}[w.rng.IntN(6)]
	}
	if kind > 20 {
		return w.vote(w.rng.IntN(2), slot)
	}
	receives := slices.Contains(w.moving[:], i+1)
	if kind == 5 || kind == 8 || kind == 17 || receives && (kind == 4 || kind == 6) {
		w.rest()
	}
	switch kind {
	case 4, 5, 6:
		w.given(i) // what it is being given may be lost
	case 2, 3, 7, 8, 12, 17:
		w.moved(i)
		w.moved(to)
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
		w.masters[i].epoch, w.masters[i].lagged = s.epoch, kind == 5 || kind == 6 && s.lagged || receives
	case 7: // its replica, which may lag, takes its place
		w.promote(i)
	case 8: // and back again: one process, with what it had replicated
		s.data, s.repl, s.promoted, s.received, s.lagged = maps.Clone(s.stale), w.id(), true, s.received+100, true
		w.bump(i)
	case 9:
		w.flush(i)
	case 10:
		w.replicate()
	case 11: // an operator vouches, who knows that no lock is held
		if !w.isHeld() {
			l := w.look(0, slot)
			l.e.Vouched = true
			w.follow(l)
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
	case 13: // CONFIG RESETSTAT; there is only a word for a flush that nobody has seen before that
		for slot, to := range w.moving {
			if to != 0 && s.flushes > 0 {
				w.finish(uint16(slot))
			}
		}
		s.clear()
	case 14: // SCRIPT FLUSH
		s.scripts, s.dropped = false, true
	case 15: // its first replica comes, or the last has been gone for long: that it was promoted is forgotten
		s.repl, s.promoted = w.id(), false
	case 16: // the slot is moved key by key
		if to != i && w.moving[slot] == 0 {
			if ready, err := w.use(slot, w.unused[slot]); !ready {
				return err
			}
			w.moving[slot] = to + 1
		}
		w.step(slot)
	case 17: // the process that was the master before is it again
		w.revert(i)
	case 20: // flushed, while its record is away with its last slot
		loser := []int{i, to}[w.rng.IntN(2)]
		held, home := w.held(loser)
		if held == nil || w.moving[home] != 0 {
			break
		}
		if err := w.move(home, w.rng.IntN(3)); err != nil {
			return err
		}
		w.flush(loser)
		return w.move(home, loser)
	default:
		w.resume()
	}
	return nil
}

// flush is FLUSHALL at master i. A slot that is being moved may have its admission key at the other master.
func (w *clusterWorld) flush(i int) {
	w.masters[i].data = make(map[uint16]slotData)
	w.masters[i].flushes++
	for slot, to := range w.moving {
		if to != 0 && (to-1 == i || w.owner[slot] == i) {
			w.masters[to-1].lagged = true // so it is used before it moves back
		}
	}
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

// move moves a slot with its keys.
func (w *clusterWorld) move(slot uint16, to int) error {
	if w.moving[slot] != 0 || w.owner[slot] == to {
		return nil
	}
	if ready, err := w.use(slot, false); !ready {
		return err
	}
	w.moving[slot] = to + 1
	w.finish(slot)
	return nil
}

// use has a client use a slot that is about to move, where its master may lack the last writes, or where it must be. It reports false
// where the key by which the slot came still counts after that: there is only a word for what is lost then.
func (w *clusterWorld) use(slot uint16, must bool) (ready bool, err error) {
	s := w.masters[w.owner[slot]]
	if !must && !s.lagged {
		return true, nil
	}
	w.allAnswer = true
	err = w.vote(0, slot)
	w.allAnswer = false
	return err == nil && !(w.unused[slot] && strings.HasPrefix(s.data[slot].key, w.a.ID())), err
}

// step moves one of the keys of a slot that is being moved; after the last, the slot is the other master's.
func (w *clusterWorld) step(slot uint16) {
	if w.moving[slot] == 0 {
		return
	}
	giver, receiver := w.masters[w.owner[slot]], w.masters[w.moving[slot]-1]
	from, to := giver.data[slot], receiver.data[slot]
	switch part := w.rng.IntN(3); {
	case part == 0 && from.key != "":
		to.key, from.key = from.key, ""
	case part == 1 && from.record != "":
		to.record, from.record = from.record, ""
	case part == 2 && from.lock != 0:
		to.lock, to.until, from.lock, from.until = from.lock, from.until, 0, 0
	}
	receiver.data[slot] = to
	if giver.data[slot] = from; from == (slotData{}) {
		delete(giver.data, slot)
		w.owner[slot], w.moving[slot], w.unused[slot] = w.moving[slot]-1, 0, true
		w.bump(w.owner[slot])
	}
}

// finish moves all keys of a slot.
func (w *clusterWorld) finish(slot uint16) {
	for w.moving[slot] != 0 {
		w.step(slot)
	}
}

// given ends what is being moved from a master, which is about to change: there is only a word for a move that is cut short.
func (w *clusterWorld) given(i int) {
	for slot, to := range w.moving {
		if to != 0 && w.owner[slot] == i {
			w.finish(uint16(slot))
		}
	}
}

// moved is given, for what is being moved to the master as well.
func (w *clusterWorld) moved(i int) {
	for slot, to := range w.moving {
		if to != 0 && (to-1 == i || w.owner[slot] == i) {
			w.finish(uint16(slot))
		}
	}
}

// promote has a master's replica, which may lag, take its place.
func (w *clusterWorld) promote(i int) {
	w.moved(i)
	w.rest()
	old := w.masters[i]
	s := w.start(old.stale)
	s.started = old.started - int64(w.rng.IntN(50))
	s.promoted, s.received, s.epoch, s.lagged, s.former = true, 100, old.epoch, true, old
	old.former = nil
	w.masters[i] = s
	w.bump(i)
}

// revert has the process that was replaced by its replica take its place again. It has received what that one had
// replicated.
func (w *clusterWorld) revert(i int) {
	old := w.masters[i]
	s := old.former
	if s == nil {
		return
	}
	s.data, s.received = maps.Clone(old.stale), s.received+100
	s.repl, s.promoted, s.epoch, s.lagged, s.former = w.id(), true, old.epoch, true, old
	old.former = nil
	w.masters[i] = s
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
