package sim

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
)

// place is a member of a sorted set.
type place struct {
	score float64
	who   string
}

// zadd is ZADD. A set is copied on write: a snapshot shares it.
func (c *call) zadd(key string, score float64, who string) {
	e, _ := c.server.find(key, c.ms)
	e.places = slices.DeleteFunc(slices.Clone(e.places), func(p place) bool { return p.who == who })
	e.list, e.places = true, append(e.places, place{score, who})
	slices.SortFunc(e.places, func(a, b place) int { return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.who, b.who)) })
	c.server.keys[key] = e
}

// zrem is ZREM.
func (c *call) zrem(key, who string) bool {
	e, _ := c.server.find(key, c.ms)
	i := rank(e.places, who)
	if i < 0 {
		return false
	}
	e.places = slices.Delete(slices.Clone(e.places), i, i+1)
	c.server.keys[key] = e
	if len(e.places) == 0 {
		delete(c.server.keys, key)
	}
	return true
}

func (c *call) places(key string) []place {
	e, _ := c.server.find(key, c.ms)
	return e.places
}

func rank(places []place, who string) int {
	return slices.IndexFunc(places, func(p place) bool { return p.who == who })
}

func (c *call) expire(key string, ms int64) {
	if e, ok := c.server.find(key, c.ms); ok {
		e.expires = c.ms + ms
		c.server.keys[key] = e
	}
}

// line is the waiting line of one record, as line.lua has it.
type line struct {
	*call
	record, next string
	line, beats  string
}

func (c *call) lineOf(record, next string) *line {
	side := next[:len(next)-len(record)-5]
	return &line{call: c, record: record, next: next, line: side + "line:" + record, beats: side + "beat:" + record}
}

func (l *line) stand(who string, ticket float64) {
	patience := script.Patience.Milliseconds()
	l.zadd(l.line, ticket, who)
	l.zadd(l.beats, float64(l.ms+patience), who)
	l.expire(l.line, 2*patience)
	l.expire(l.beats, 2*patience)
}

// mend deletes what is no line.
func (l *line) mend() {
	for _, key := range []string{l.line, l.beats} {
		if e, ok := l.server.find(key, l.ms); ok && (!e.list || len(e.places) == 0) {
			delete(l.server.keys, key)
		}
	}
}

func (l *line) leave(who string) {
	l.zrem(l.beats, who)
	l.zrem(l.line, who)
}

// called reads who was called, until when, and from whom.
func called(next string) (who string, deadline int64, from string, ok bool) {
	who, rest, found := strings.Cut(next, " ")
	text, from, _ := strings.Cut(rest, " ")
	deadline, err := strconv.ParseInt(text, 10, 64)
	return who, deadline, from, found && err == nil
}

// summon is call of line.lua.
func (l *line) summon(self, from string, again bool) (who string, deadline int64, left string) {
	next, _ := l.seen(l.next)
	who, deadline, before, ok := called(next)
	from = cmp.Or(from, before)
	if ok && deadline >= l.ms && deadline <= l.ms+script.Grace.Milliseconds() && rank(l.places(l.line), who) >= 0 {
		if from != before {
			l.keep(who, deadline, from)
		}
		if again && who[0] != '-' {
			l.publish(who, from)
		}
		return who, deadline, from
	}
	grace, patience := script.Grace.Milliseconds(), script.Patience.Milliseconds()
	if ok && who != self {
		heard := -patience
		if i := rank(l.places(l.beats), who); i >= 0 {
			heard += int64(l.places(l.beats)[i].score)
		}
		if heard <= deadline-grace || heard > l.ms {
			l.leave(who)
		}
	}
	for range 1024 {
		places := l.places(l.line)
		if len(places) == 0 {
			break
		}
		first := places[0].who
		listeners := -l.ms
		if i := rank(l.places(l.beats), first); i >= 0 {
			listeners += int64(l.places(l.beats)[i].score)
		}
		if listeners > patience {
			listeners = 0
		}
		if listeners > 0 && first != self && first[0] != '-' {
			listeners = l.publish(first, from)
		}
		if listeners > 0 {
			l.keep(first, l.ms+grace, from)
			return first, l.ms + grace, from
		}
		l.leave(first)
	}
	delete(l.server.keys, l.next)
	return "", 0, ""
}

// first is what next says of the first in line.
func first(who string) string {
	if who[0] == '-' {
		return "-"
	}
	return "=" + who
}

// keep notes who was called.
func (l *line) keep(who string, deadline int64, from string) {
	l.put(l.next, who+" "+strconv.FormatInt(deadline, 10)+" "+from, milliseconds(script.Patience))
}

// publish is publish.lua, and returns how many listen.
func (l *line) publish(who, from string) int64 {
	if l.server.Publish == nil {
		return 0
	}
	process, _, _ := strings.Cut(who, "/")
	return int64(l.server.Publish("redlatch:call:"+process, who+" "+strconv.Itoa(len(from))+" "+from+l.record))
}

// standing is stand.lua.
func (c *call) standing() (driver.Reply, error) {
	record, next := c.keys[0], c.keys[2]
	who, ticket := c.argv[1], number(c.argv[2])
	if !c.admitted(c.keys[1], c.argv[3]) {
		return integer(0)
	}
	if c.server.Replica {
		return refuse(readOnly)
	}
	l := c.lineOf(record, next)
	said, ok := c.seen(next)
	l.mend()
	lapsed := slices.Clone(l.places(l.beats))
	for _, p := range lapsed {
		if p.score < float64(c.ms) || p.score > float64(c.ms+script.Patience.Milliseconds()) {
			l.leave(p.who)
			if said == "="+p.who {
				said = "-"
			}
		}
	}
	if c.argv[2] == "0" {
		ticket = float64(c.now.UnixMicro())
		if i := rank(l.places(l.line), who); i >= 0 {
			ticket = l.places(l.line)[i].score
		}
	}
	l.stand(who, ticket)
	answer := func(ahead int, holder string, left int64, more ...driver.Reply) (driver.Reply, error) {
		return driver.Reply{Kind: driver.Array, Array: append([]driver.Reply{
			{Kind: driver.Int, Int: int64(ahead)}, text(strconv.FormatFloat(ticket, 'f', 0, 64)), text(holder), {Kind: driver.Int, Int: left},
		}, more...)}, nil
	}
	if holder, held := c.seen(record); held {
		if !ok {
			said = "-"
		}
		ahead := rank(l.places(l.line), who)
		if ahead == 0 && (said == "-" || said[0] == '=') {
			said = first(who)
		}
		c.put(next, said, milliseconds(script.Patience))
		return answer(ahead, holder, c.left(record))
	}
	summoned, deadline, from := l.summon(who, "", false)
	ahead := max(0, rank(l.places(l.line), who))
	if summoned != who {
		ahead = max(ahead, 1)
	}
	return answer(ahead, "", deadline-c.ms, text(from))
}

// left is PTTL of a key that is there.
func (c *call) left(key string) int64 {
	if e, _ := c.server.find(key, c.ms); e.expires != 0 {
		return max(0, e.expires-c.ms)
	}
	return -1
}
