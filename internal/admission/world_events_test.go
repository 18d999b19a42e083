package admission

import "maps"

func (w *world) event() error {
	c, i := w.rng.IntN(len(w.clients)), w.rng.IntN(3)
	s := w.servers[i]
	kind := w.rng.IntN(28)
	if kind > 16 {
		return w.vote(c, i)
	}
	w.log("%d: event %d at %d", w.now, kind, i)
	switch kind {
	case 0, 1: // restarts empty or with an old copy, or with all where that was on disk
		switch {
		case s.fsync:
			w.restart(i, s.data, false)
		case kind == 0:
			w.restart(i, nil, true)
		default:
			w.restart(i, s.behind, true)
		}
	case 2: // all keys are deleted at once by DEL, or go with SWAPDB
		s.data = make(map[string]keys)
		w.lose(i)
	case 3:
		w.failback(i)
	case 4: // the same after a vote, and it forgets that it was promoted
		if w.durable {
			return nil
		}
		s.behind = maps.Clone(s.data)
		if err := w.vote(c, i); err != nil {
			return err
		}
		w.failback(i)
		s.repl, s.promoted = w.id(), false
		return w.vote(c, i)
	case 5: // its first replica comes, or the last has been gone for long: that it was promoted is forgotten
		s.repl, s.promoted = w.id(), false
	case 6: // FLUSHALL
		s.data = make(map[string]keys)
		s.flushes++
		w.lose(i)
	case 7: // SCRIPT FLUSH, or with it all that could tell goes, and the keys
		s.scripts, s.dropped = make(map[string]bool), true
		if w.rng.IntN(2) == 0 {
			s.clear()
			s.data = make(map[string]keys)
			w.lose(i)
		}
	case 8:
		s.behind = maps.Clone(s.data)
	case 9:
		if w.rng.IntN(3) == 0 {
			w.set(c)
		}
	case 10: // an operator vouches, who knows that nothing was forgotten
		if !s.forgot(w.now) {
			l := w.look(c, i)
			l.e.Vouched = true
			w.follow(l)
		}
	case 11: // CONFIG RESETSTAT
		s.clear()
	case 12: // FAILOVER is given up: it was no replica, but looks like one that was
		if !w.durable {
			s.repl, s.promoted, s.received = w.id(), true, s.received+2
		}
	case 13:
		w.promote(i)
	default:
		w.resume()
	}
	return nil
}

func (w *world) restart(i int, data map[string]keys, loses bool) {
	old := w.servers[i]
	s := w.start(data)
	s.grants = old.grants // its settings may be others
	w.servers[i] = s
	if loses {
		w.lose(i)
	}
}

// failback has server i be a replica of its replica, and a master again: it goes back to what
// the replica had.
func (w *world) failback(i int) {
	s := w.servers[i]
	if w.durable {
		return
	}
	s.data, s.repl, s.promoted, s.received = maps.Clone(s.behind), w.id(), true, s.received+100
	w.lose(i)
}

// promote has a replica of server i take its place, which was started before; or the process that was the master before,
// which was a replica meanwhile, and has received what there was, or nothing.
func (w *world) promote(i int) {
	if w.durable {
		return
	}
	old := w.servers[i]
	s := old.former
	switch {
	case s == nil:
		s = w.start(old.behind)
		s.started -= int64(w.rng.IntN(300))
		s.received = 101
	case w.rng.IntN(2) == 0: // it has received nothing
		s.received += 2
	default:
		s.data, s.received = maps.Clone(old.behind), s.received+100
	}
	s.repl, s.promoted, s.grants = w.id(), true, old.grants
	s.former, old.former = old, nil
	w.servers[i] = s
	w.lose(i)
}

// set is an operator's change of a deployment, on the servers that can be reached.
func (w *world) set(c int) {
	for i := range w.servers {
		if w.rng.IntN(8) != 0 {
			l := w.look(c, i)
			l.set = true
			w.follow(l)
		}
	}
}
