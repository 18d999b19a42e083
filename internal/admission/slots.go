package admission

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/hashslot"
)

// A master of a Redis Cluster may come to have a slot without what was in it: a replica that lagged
// takes its master's place, or the slots of a dead master are given to others. How long the server
// has been up says nothing about that. So a master's record says which slots the server was seen to
// have, and since when without a break. A slot votes when a quarantine has gone by since then.

// SlotRange is the slots from First to Last. Since is the second of the master's clock since which
// it has been seen to have them.
type SlotRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
	Since int64  `json:"since"`
}

// Slots are ranges in order, which do not overlap.
type Slots []SlotRange

// valid reports whether a client can have written s.
func (s Slots) valid() bool {
	next := 0
	for _, r := range s {
		if int(r.First) < next || r.Last < r.First || r.Last >= hashslot.Slots || r.Since < 0 {
			return false
		}
		next = int(r.Last) + 1
	}
	return true
}

// Since returns since when the slot is known; ok is false where it is not.
func (s Slots) Since(slot uint16) (since int64, ok bool) {
	i, _ := slices.BinarySearchFunc(s, slot, func(r SlotRange, slot uint16) int { return int(r.Last) - int(slot) })
	if i == len(s) || s[i].First > slot {
		return 0, false
	}
	return s[i].Since, true
}

// After returns s, the slots that a master has at now, merged with what was known before: a slot
// that was known keeps its Since.
func (s Slots) After(before Slots, now int64) Slots {
	var after Slots
	for _, r := range s {
		for slot := int(r.First); slot <= int(r.Last); slot++ {
			since, ok := before.Since(uint16(slot))
			if !ok || since > now {
				since = now
			}
			if last := len(after) - 1; last >= 0 && after[last].Since == since && int(after[last].Last) == slot-1 {
				after[last].Last++
			} else {
				after = append(after, SlotRange{First: uint16(slot), Last: uint16(slot), Since: since})
			}
		}
	}
	return after
}

// Shard is what a decision about a slot of a Cluster rests on, besides what is seen of its master
// as a server.
type Shard struct {
	// Slot is the slot that a lock is in; Held are the slots that the master has now.
	Slot uint16
	Held Slots
	// Epoch is the master's configuration epoch, which changes when it takes over slots of
	// others (Redis Cluster specification, "configEpoch conflicts resolution").
	Epoch int64
	// Brought: the slot has the admission key of another master, which is still the same server,
	// and this master has been up since before that key was last written. So the slot came with all
	// that was in it.
	Brought bool
	// Stale: the slot has the admission key of another master, and is not Brought, nor will it be.
	Stale bool
	// Masters is how many masters the Cluster has.
	Masters int
}

// knownSlots returns the slots that the record vouches for: those of this server in its present
// epoch.
func (e *Evidence) knownSlots() Slots {
	if !e.isKnown() || e.Record.Epoch != e.Shard.Epoch {
		return nil
	}
	return e.Record.Slots
}

// Renew sets r to what a master's record must say of its slots from now on. It reports whether that
// differs from what is recorded.
func (e *Evidence) Renew(r *Record) (changed bool) {
	known := e.knownSlots()
	if e.Vouched {
		known = nil
		for _, r := range e.Shard.Held {
			known = append(known, SlotRange{First: r.First, Last: r.Last})
		}
	}
	r.Server, r.Since, r.Epoch, r.Flushes, r.Slots = e.Server, e.Now, e.Shard.Epoch, e.Flushes, e.Shard.Held.After(known, e.Now)
	if !e.isKnown() || e.Record.outlived(e.Flushes) {
		return true
	}
	r.Since = min(r.Since, e.Record.Since)
	return e.Record.Server != r.Server || e.Record.Epoch != r.Epoch || e.Record.Flushes != r.Flushes || !slices.Equal(e.Record.Slots, r.Slots)
}

// outlived reports whether all keys of the master were deleted since the record was written: its slot was at another
// master meanwhile.
func (r *Record) outlived(flushes int64) bool { return flushes > r.Flushes }

// decideSlot is Decide for a slot, where nothing forbids a vote.
func decideSlot(a Agreement, e *Evidence) Decision {
	quarantine := a.Quarantine()
	since, known := e.knownSlots().Since(e.Shard.Slot)
	left := time.Duration(since+seconds(quarantine)-e.Now) * time.Second
	switch {
	// rule: slot-known-for-long
	case known && since <= e.Now && left <= 0, e.Shard.Brought:
		return Decision{Outcome: Admit}
	case known && since <= e.Now:
		return Decision{Outcome: Wait, Err: &WaitError{Reason: e.whyNew(a), Left: left, RunID: e.Run}}
	}
	return Decision{Outcome: Begin, Err: &WaitError{Reason: e.whyNew(a), Left: quarantine, RunID: e.Run}}
}

// whyNew says what may have been lost of a slot that has not been known for long enough.
func (e *Evidence) whyNew(a Agreement) string {
	switch {
	case e.Promoted, e.Received > 0:
		return "its master was promoted from replica, and may lack the last writes"
	case e.Flushed:
		return "its master's data was deleted, or may have been"
	case e.Uptime < a.Quarantine():
		return fmt.Sprintf("its master started %v ago and may have forgotten locks of up to %v", e.Uptime, a.MaxTTL)
	}
	return "nobody has known for long enough that its master has the slot, with all that was in it"
}

// Foreign reports whether a slot's admission key was written by clients of a at another server.
func (e *Evidence) Foreign(a Agreement, key string) bool {
	source, _, ok := parseKey(a, key)
	return ok && source.Run != e.Run
}

// Master is another master of the Cluster.
type Master struct {
	Server
	Now      int64 // its clock in seconds, read after that of the slot's master
	Answered bool
	// Flushed and Flushes are as in Evidence, and Record what it has recorded.
	Flushed bool
	Flushes int64
	Record  *Record
}

// mayHaveLost reports whether the master may have deleted all its keys after that time by its clock. If it ever did, its record is
// of after that, or counts less.
func (m Master) mayHaveLost(after time.Time) bool {
	return m.Flushed && (m.Record == nil || !m.hasBeen(m.Record.Server, true) || m.Record.outlived(m.Flushes) || m.Record.Since >= after.Unix())
}

// Came sets whether the slot was brought with its admission key, or that key is stale, by what the other masters say.
func (e *Evidence) Came(a Agreement, key string, others []Master) {
	if !e.Foreign(a, key) {
		return
	}
	source, written, _ := parseKey(a, key)
	e.Shard.Stale = true // unless the master that wrote the key is what it was then, or has perhaps not answered
	for _, m := range others {
		if !m.Answered {
			e.Shard.Stale = false
		} else if m.Run == source.Run {
			// A key that was moved before its lock outlives it.
			if m.mayHaveLost(written) {
				e.Shard.Stale = true
				return
			}
			e.Shard.Brought, e.Shard.Stale = e.BroughtFrom(a, key, m.Server, m.Now), !e.MayBeBroughtFrom(a, key, m.Server, m.Now)
			return
		}
	}
}

// BroughtFrom reports whether a slot came here, with its admission key, from a server that is
// another master and still is what it was when that key was written. Then that server kept the
// slot's data until the slot came here. And this server has been the master that it is for longer
// than ago that was: so it lost nothing of the slot either. now is the other server's clock in
// seconds, read after this one's. Each of the two times is by one server's clock: what the clocks
// show does not matter, unless the other one was set back since.
func (e *Evidence) BroughtFrom(a Agreement, key string, other Server, now int64) bool {
	return e.broughtFrom(a, key, other, now, 0)
}

// MayBeBroughtFrom reports whether BroughtFrom may be true later, as times are in whole seconds.
func (e *Evidence) MayBeBroughtFrom(a Agreement, key string, other Server, now int64) bool {
	return e.broughtFrom(a, key, other, now, 3*time.Second)
}

// broughtFrom is BroughtFrom for a server that has been the master for so much longer.
func (e *Evidence) broughtFrom(a Agreement, key string, other Server, now int64, longer time.Duration) bool {
	source, written, ok := parseKey(a, key)
	if !ok || source.Run == e.Run || source.Run != other.Run || source.ReplicationID != other.ReplicationID {
		return false
	}
	since, ok := e.masterSince()
	ago := time.Unix(now+1, 0).Sub(written)
	return ok && ago >= 0 && time.Unix(e.Now, 0).Sub(since)+longer > ago+ago/100
}

// masterSince returns a time since which the server has been the master that it is; ok is false
// where nobody knows one. A server that was promoted may have its master's data of some time
// before, and one that was told to delete all keys has a record of after that, none, or one that counts less.
func (e *Evidence) masterSince() (since time.Time, ok bool) {
	switch {
	case !e.Promoted && e.Received == 0 && !e.Flushed:
		return time.Unix(e.Now, 0).Add(-e.Uptime), true
	case e.isKnown() && !e.Record.outlived(e.Flushes):
		return time.Unix(e.Record.Since+1, 0), true
	}
	return since, false
}

// parseKey reads an admission key: the agreement, the run, the replication id, and when that id was
// last looked at, in µs. ok is false where clients of another agreement wrote the key, or where it
// is none.
func parseKey(a Agreement, key string) (s Server, written time.Time, ok bool) {
	fields := strings.Fields(key)
	if len(fields) != 4 || fields[0] != a.ID() {
		return s, written, false
	}
	micros, err := strconv.ParseInt(fields[3], 10, 64)
	return Server{Run: fields[1], ReplicationID: fields[2]}, time.UnixMicro(micros), err == nil
}
