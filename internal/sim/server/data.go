package server

import (
	"cmp"
	"slices"
	"time"
)

// Data is what a server keeps. A copy of the map is one of the data: what is at a
// key is replaced and never changed.
type Data map[string]entry

type entry struct {
	kind    valueKind
	value   string   // of a string
	members []member // of a sorted set, in order; of a list, as many as it has
	expires int64    // in ms of the server's clock, 0 for never
}

type valueKind uint8

const (
	stringValue valueKind = iota
	sortedSet
	otherValue // a list, of which nothing is asked
)

type member struct {
	score float64
	name  string
}

func (m member) compare(o member) int {
	return cmp.Or(cmp.Compare(m.score, o.score), cmp.Compare(m.name, o.name))
}

// live returns what is at key at ms of the server's clock. It is gone when the clock is
// past its expiry (Redis source, keyIsExpired).
func (d Data) live(key string, ms int64) (entry, bool) {
	e, ok := d[key]
	if ok && e.expires != 0 && ms > e.expires {
		return entry{}, false
	}
	return e, ok
}

// Value returns the string at key, if there is one at that time.
func (d Data) Value(key string, at time.Time) (string, bool) {
	e, ok := d.live(key, at.UnixMilli())
	return e.value, ok && e.kind == stringValue
}

// Scores are the members of the sorted set at key, with their scores, at that time.
func (d Data) Scores(key string, at time.Time) map[string]float64 {
	e, ok := d.live(key, at.UnixMilli())
	if !ok || e.kind != sortedSet {
		return nil
	}
	scores := make(map[string]float64, len(e.members))
	for _, m := range e.members {
		scores[m.name] = m.score
	}
	return scores
}

// Expires is when the key expires, long ago for one that is not there or does not.
func (d Data) Expires(key string) time.Time { return time.UnixMilli(d[key].expires) }

// Has reports whether key has that string, expired or not.
func (d Data) Has(key, value string) bool {
	e, ok := d[key]
	return ok && e.kind == stringValue && e.value == value
}

// find returns what is at key now, and deletes what has expired.
func (s *Server) find(key string) (entry, bool) {
	e, ok := s.data[key]
	if ok && e.expires != 0 && s.now.UnixMilli() > e.expires {
		delete(s.data, key)
		return entry{}, false
	}
	return e, ok
}

// rank is the place of a member, -1 for none.
func (e entry) rank(name string) int {
	return slices.IndexFunc(e.members, func(m member) bool { return m.name == name })
}

// without is e without the member at i.
func (e entry) without(i int) entry {
	e.members = slices.Concat(e.members[:i], e.members[i+1:])
	return e
}

// with is e with one more member.
func (e entry) with(m member) entry {
	i, _ := slices.BinarySearchFunc(e.members, m, member.compare)
	e.members = slices.Concat(e.members[:i], []member{m}, e.members[i:])
	return e
}

// Take deletes what is at key, and returns it with how long it had left by the server's clock.
func (s *Server) Take(key string) (taken Taken, ok bool) {
	e, ok := s.data.live(key, s.Clock().UnixMilli())
	delete(s.data, key)
	return Taken{e, max(1, e.expires-s.Clock().UnixMilli())}, ok
}

// Taken is what was at a key.
type Taken struct {
	entry entry
	left  int64 // in ms, if it expires
}

// Put sets key to what was taken elsewhere, as RESTORE does.
func (s *Server) Put(key string, t Taken) {
	if t.entry.expires != 0 {
		t.entry.expires = s.Clock().UnixMilli() + t.left
	}
	s.data[key] = t.entry
}
