package sim

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
)

var shas sync.Map // of string by text

func sha(body string) string {
	if name, ok := shas.Load(body); ok {
		return name.(string)
	}
	sum := sha1.Sum([]byte(body))
	name := hex.EncodeToString(sum[:])
	shas.Store(body, name)
	return name
}

// call is one run of a script: its arguments, and the time, which stands still
// while a script runs.
type call struct {
	server     *Server
	now        time.Time
	ms         int64
	keys, argv []string
}

// script runs the model of the script with this text.
func (s *Server) script(now time.Time, body string, args []string) (driver.Reply, error) {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		panic(fmt.Sprintf("sim: number of keys %q", args[0]))
	}
	c := &call{server: s, now: now, ms: now.UnixMilli(), keys: args[1 : 1+n], argv: args[1+n:]}
	switch body {
	case script.Releasing.Text:
		return c.release()
	case script.Inspect.Text:
		return c.inspect()
	case script.Quarantine.Text:
		return c.quarantine()
	}
	knowsVoting(body)
	switch c.argv[0] {
	case script.Acquire:
		return c.acquire()
	case script.Extend:
		return c.extend()
	case script.Confirm:
		return c.confirm()
	case script.Repair:
		return c.repair()
	case script.Admit:
		return c.admit()
	case script.Enqueue:
		return c.standing()
	case script.Batch:
		return c.several()
	}
	return refuse("REDLATCH no such step: " + c.argv[0])
}

var votings sync.Map // of bool by text: a text is read and compared once

// knowsVoting makes sure that the voting script is what the model was made after.
func knowsVoting(body string) {
	if _, ok := votings.Load(body); ok {
		return
	}
	first, _, _ := strings.Cut(body, "\n")
	if script.Voting(strings.TrimPrefix(first, "-- deployment ")).Text != body {
		panic("sim: the model does not know the script that begins " + first)
	}
	votings.Store(body, true)
}

// admitted is admitted.lua.
func (c *call) admitted(key, expected string) bool {
	said, ok := c.seen(key)
	if !ok || len(said) < 18 || said[:len(said)-17] != expected {
		return false
	}
	s := c.server
	if s.Mutation == ReplicationIgnored {
		return true
	}
	clock := c.now.UnixMicro()
	at, _ := strconv.ParseInt(said[len(said)-16:], 10, 64)
	if age := clock - at; age < 0 || age > 2000 {
		if s.Replica || len(expected) < 40 || expected[len(expected)-40:] != s.ReplicationID {
			return false
		}
		s.keys[key] = entry{value: expected + " " + fmt.Sprintf("%016d", clock)}
	}
	return true
}

// seen is what MGET says of a key: nothing for one of another type.
func (c *call) seen(key string) (string, bool) {
	e, ok := c.server.find(key, c.ms)
	return e.value, ok && !e.list
}

// put is SET key value PX ttl.
func (c *call) put(key, value, ttl string) {
	n, err := strconv.ParseInt(ttl, 10, 64)
	if err != nil || n <= 0 {
		panic(fmt.Sprintf("sim: SET PX %q", ttl))
	}
	c.server.keys[key] = entry{value: value, expires: c.ms + n}
}

// putNew is put with NX.
func (c *call) putNew(key, value, ttl string) bool {
	if _, ok := c.server.find(key, c.ms); ok {
		return false
	}
	c.put(key, value, ttl)
	return true
}

// other answers {holder, PTTL} for a record that is another's, 0 for none.
func (c *call) other(holder string, ok bool) (driver.Reply, error) {
	if !ok {
		return integer(0)
	}
	return driver.Reply{Kind: driver.Array, Array: []driver.Reply{text(holder), {Kind: driver.Int, Int: c.left(c.keys[0])}}}, nil
}

// number is Lua's tonumber for what a counter can be, 0 for what is none.
func number(s string) float64 {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0
	}
	return n
}

func (c *call) acquire() (driver.Reply, error) {
	record, counter := c.keys[0], c.keys[1]
	id, ttl, proposed, seconds, counterTTL := c.argv[1], c.argv[2], c.argv[3], c.argv[4], c.argv[5]
	var waiter, from string
	lowest := proposed
	if len(c.argv) > 7 {
		waiter = c.argv[7]
	}
	if len(c.argv) > 8 {
		from = c.argv[8]
	}
	if len(c.argv) > 9 {
		lowest = c.argv[9]
	}
	m := c.server.Mutation
	if !c.admitted(c.keys[2], c.argv[6]) && m != MarkerIgnored {
		return integer(0)
	}
	holder, held := c.seen(record)
	last, counted := c.seen(counter)
	if held && holder == id && waiter != "=" {
		if !counted {
			return refuse("REDLATCH the fence counter of " + record + " is gone")
		}
		return integer(int64(number(last)))
	}
	if held && (from == "" || holder != from) && m != AcquireOverwrites {
		return c.other(holder, true)
	}
	next, waiting := c.seen(c.keys[3])
	who := ""
	if first, deadline, _, ok := called(next); ok && waiting && waiter != "*" {
		who = first
		if left := deadline - c.ms; who != waiter && left >= 0 && left <= script.Grace.Milliseconds() {
			return driver.Reply{Kind: driver.Array, Array: []driver.Reply{text(""), {Kind: driver.Int, Int: left}}}, nil
		}
	}
	granted := proposed
	if strconv.FormatInt(c.now.Unix(), 10) != seconds || counted && (len(last) != len(lowest) || last >= lowest) {
		now := float64(c.now.UnixMicro())
		n := number(proposed)
		if m != CounterUnclamped {
			clamp := float64(script.Clamp.Microseconds())
			n = math.Min(math.Max(n, now-clamp), now+clamp)
		}
		if m != CounterFromClock {
			room := number(proposed) - number(lowest)
			if m == BlockOverlaps {
				room = 0
			}
			if counted {
				if _, err := strconv.ParseUint(last, 10, 64); err != nil || len(last) > 16 || number(last) >= script.MaxCounter-(number(proposed)-number(lowest)) {
					return refuse("REDLATCH the fence counter " + counter + " is " + last)
				}
				n = math.Max(n, number(last)+1+room)
			}
		}
		granted = strconv.FormatFloat(n, 'f', 0, 64)
	}
	if c.server.Replica {
		return refuse(readOnly)
	}
	if m == AcquireOverwrites || held {
		delete(c.server.keys, record)
	}
	if !c.putNew(record, id, ttl) {
		return refuse(wrongType)
	}
	if _, ok := c.server.find(counter, c.ms); ok && !counted {
		delete(c.server.keys, record)
		return refuse("REDLATCH the fence counter " + counter + " is of another type")
	}
	c.put(counter, granted, counterTTL)
	others := waiting
	if who != "" && who == waiter {
		l := c.lineOf(record, c.keys[3])
		l.leave(who)
		if others = len(l.places(l.line)) > 0; others {
			c.put(c.keys[3], first(l.places(l.line)[0].who), milliseconds(script.Patience))
		} else {
			delete(c.server.keys, c.keys[3])
			delete(c.server.keys, l.line)
			delete(c.server.keys, l.beats)
		}
	}
	token := driver.Reply{Kind: driver.Int, Int: int64(number(granted))}
	if !waiting && (from == "" || held) {
		return token, nil
	}
	return driver.Reply{Kind: driver.Array, Array: []driver.Reply{token, bit(held), bit(others)}}, nil
}

func (c *call) extend() (driver.Reply, error) {
	record, counter := c.keys[0], c.keys[1]
	id, ttl, token, counterTTL := c.argv[1], c.argv[2], c.argv[3], c.argv[4]
	m := c.server.Mutation
	if !c.admitted(c.keys[2], c.argv[5]) {
		return integer(-1)
	}
	holder, held := c.seen(record)
	if m == ExtendCreates && !held && c.putNew(record, id, ttl) {
		holder, held = id, true
	}
	if !held || holder != id {
		return c.other(holder, held)
	}
	if c.server.Replica {
		return refuse(readOnly)
	}
	e := c.server.keys[record]
	n, err := strconv.ParseInt(ttl, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("sim: PEXPIRE %q", ttl))
	}
	// GT counts a key without an expiry as living for ever.
	if e.expires != 0 && c.ms+n > e.expires || m == ExtendShortens {
		e.expires = c.ms + n
		c.server.keys[record] = e
	}
	c.raise(counter, token, counterTTL)
	return integer(1)
}

// raise stores the token where the counter is less.
func (c *call) raise(counter, token, ttl string) {
	if last, _ := c.seen(counter); last != token && number(last) < number(token) {
		c.put(counter, token, ttl)
	}
}

func (c *call) confirm() (driver.Reply, error) {
	holder, _ := c.seen(c.keys[0])
	last, _ := c.seen(c.keys[1])
	switch c.server.Mutation {
	case ConfirmSkipped:
		return integer(1)
	case ConfirmUnguarded:
	default:
		if holder != c.argv[1] || last != c.argv[2] {
			return integer(0)
		}
	}
	if c.server.Replica {
		return refuse(readOnly)
	}
	c.put(c.keys[1], c.argv[3], c.argv[4])
	return integer(1)
}

func (c *call) repair() (driver.Reply, error) {
	record, counter := c.keys[0], c.keys[1]
	id, ttl, token, counterTTL := c.argv[1], c.argv[2], c.argv[3], c.argv[4]
	if !c.admitted(c.keys[2], c.argv[5]) {
		return integer(-1)
	}
	blind := c.server.Mutation == RepairOverwrites
	if blind {
		delete(c.server.keys, record)
	}
	if holder, held := c.seen(record); held {
		if holder == id {
			return integer(1)
		}
		return integer(0)
	}
	if last, _ := c.seen(counter); number(last) > number(token) && !blind {
		return integer(0)
	}
	if c.server.Replica {
		return refuse(readOnly)
	}
	if !c.putNew(record, id, ttl) {
		return integer(0)
	}
	c.put(counter, token, counterTTL)
	return integer(1)
}

// release is release.lua and what follows it, handon.lua and otherwise.lua.
func (c *call) release() (driver.Reply, error) {
	record, counter, next := c.keys[0], c.keys[1], c.keys[2]
	id, token, counterTTL := c.argv[0], c.argv[1], c.argv[2]
	holder, held := c.seen(record)
	said, waiting := c.seen(next)
	ours := held && (holder == id || c.server.Mutation == ReleaseBlind)
	if ours || waiting || len(c.argv) > 4 {
		if c.server.Replica {
			return refuse(readOnly)
		}
	}
	if ours {
		c.raise(counter, token, counterTTL)
		delete(c.server.keys, record)
	}
	summoned, from := "", ""
	place := c.argv[3:]
	if len(place) > 0 && place[0] == ">" {
		if place = nil; ours || c.server.Mutation == LeavesUnheld {
			from = id
		}
	}
	l := c.lineOf(record, next)
	if who, ok := strings.CutPrefix(said, "="); ok && ours && len(place) == 0 && l.publish(who, from) > 0 {
		l.keep(who, l.ms+script.Grace.Milliseconds(), from)
		return integer(2)
	}
	if waiting || len(place) > 0 {
		l.mend()
		if len(place) > 0 {
			who, ticket := place[0], place[1]
			if ticket == "0" {
				l.leave(who)
				if said == "="+who {
					l.put(next, "-", milliseconds(script.Patience))
				}
			} else {
				l.stand(who, number(ticket))
			}
		}
		if ours || !held {
			summoned, _, _ = l.summon("", from, true)
		}
	}
	switch {
	case ours && summoned != "":
		return integer(2)
	case ours:
		return integer(1)
	}
	if e, _ := c.server.find(record, c.ms); e.list {
		return refuse(wrongType)
	}
	return c.other(holder, held)
}

// bit is Lua's "x and 1 or 0".
func bit(is bool) driver.Reply {
	if is {
		return driver.Reply{Kind: driver.Int, Int: 1}
	}
	return driver.Reply{Kind: driver.Int}
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func (c *call) admit() (driver.Reply, error) {
	admission, deployment, quarantine := c.keys[0], c.keys[1], c.keys[2]
	s := c.server
	expected := c.argv[1]
	if !strings.HasSuffix(expected, " "+s.RunID+" "+s.ReplicationID) || s.Replica {
		return integer(0)
	}
	if record, _ := c.seen(deployment); s.Mutation != AdmissionBlind && (record != c.argv[3] || s.flushed() != c.argv[4]) {
		return integer(-1)
	}
	s.keys[admission] = entry{value: expected + " " + fmt.Sprintf("%016d", c.now.UnixMicro())}
	s.keys[deployment] = entry{value: c.argv[2]}
	delete(s.keys, quarantine)
	return integer(1)
}

// quarantine is quarantine.lua.
func (c *call) quarantine() (driver.Reply, error) {
	s := c.server
	if c.argv[0] != s.RunID || c.argv[1] != s.ReplicationID {
		return integer(0)
	}
	record, _ := c.seen(c.keys[1])
	note, _ := c.seen(c.keys[2])
	anew := c.argv[4] == "*"
	if !anew && (record != c.argv[4] || note != c.argv[5]) {
		return integer(-1)
	}
	if s.Replica {
		return refuse(readOnly)
	}
	if anew {
		s.keys[c.keys[1]] = entry{value: c.argv[5]}
	}
	delete(s.keys, c.keys[0])
	seconds, err := strconv.ParseInt(c.argv[3], 10, 64)
	if err != nil {
		panic(fmt.Sprintf("sim: SET EX %q", c.argv[3]))
	}
	s.keys[c.keys[2]] = entry{value: c.argv[2], expires: c.ms + 1000*seconds}
	return integer(1)
}

func (c *call) inspect() (driver.Reply, error) {
	answer := []driver.Reply{text(c.server.info(c.now))}
	for _, key := range c.keys {
		e, _ := c.server.find(key, c.ms)
		if e.list {
			answer = append(answer, driver.Reply{})
			continue
		}
		answer = append(answer, text(e.value))
	}
	return driver.Reply{Kind: driver.Array, Array: append(answer, text(strconv.FormatInt(c.now.Unix(), 10)))}, nil
}
