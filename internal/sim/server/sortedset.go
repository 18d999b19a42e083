package server

import (
	"math"
	"strconv"
	"strings"
)

// set returns the sorted set at key, and refuses what is none.
func (s *Server) sortedSet(key string) (e entry, found bool, refused reply) {
	e, found = s.find(key)
	if found && e.kind != sortedSet {
		return entry{}, false, refuse(wrongType)
	}
	e.kind = sortedSet
	return e, found, reply{}
}

// keep stores a sorted set, of which an empty one is none.
func (s *Server) keep(key string, e entry) {
	if len(e.members) == 0 {
		delete(s.data, key)
		return
	}
	s.data[key] = e
}

// parseScore reads a number as strtod does.
func parseScore(text string) (float64, bool) {
	if strings.ContainsRune(text, '_') {
		return 0, false
	}
	score, err := strconv.ParseFloat(text, 64)
	return score, err == nil && !math.IsNaN(score)
}

func formatScore(score float64) string {
	switch {
	case math.IsInf(score, 1):
		return "inf"
	case math.IsInf(score, -1):
		return "-inf"
	case score == math.Trunc(score) && math.Abs(score) < 1<<52:
		return strconv.FormatInt(int64(score), 10)
	}
	return formatDouble(score)
}

// zadd is ZADD key score member [score member ...].
func (s *Server) zadd(args []string) reply {
	if len(args)%2 != 0 {
		return refuse(syntax)
	}
	scores := make([]float64, 0, 1)
	for i := 2; i < len(args); i += 2 {
		score, ok := parseScore(args[i])
		if !ok {
			return refuse(noFloat)
		}
		scores = append(scores, score)
	}
	e, _, refused := s.sortedSet(args[1])
	if refused.kind == failure {
		return refused
	}
	added := 0
	for i, score := range scores {
		name := args[2*i+3]
		if at := e.rank(name); at >= 0 {
			e = e.without(at)
		} else {
			added++
		}
		e = e.with(member{score, name})
	}
	s.keep(args[1], e)
	return count(added)
}

func (s *Server) zrem(args []string) reply {
	e, found, refused := s.sortedSet(args[1])
	if !found {
		return orZero(refused)
	}
	removed := 0
	for _, name := range args[2:] {
		if at := e.rank(name); at >= 0 {
			e = e.without(at)
			removed++
		}
	}
	s.keep(args[1], e)
	return count(removed)
}

// orZero is a refusal, 0 without one.
func orZero(refused reply) reply {
	if refused.kind == failure {
		return refused
	}
	return number(0)
}

func (s *Server) zscore(args []string) reply {
	e, found, refused := s.sortedSet(args[1])
	if !found {
		return refused
	}
	at := e.rank(args[2])
	if at < 0 {
		return reply{}
	}
	return text(formatScore(e.members[at].score))
}

// zrank is ZRANK key member.
func (s *Server) zrank(args []string) reply {
	if len(args) > 3 {
		return refuse(syntax)
	}
	e, found, refused := s.sortedSet(args[1])
	if !found {
		return refused
	}
	at := e.rank(args[2])
	if at < 0 {
		return reply{}
	}
	return count(at)
}

// span is which members a ZRANGE is about.
type span struct {
	byScore       bool
	first, last   int64 // by rank
	low, high     bound // by score
	limited       bool
	offset, count int64
	scores        bool // WITHSCORES
}

// bound is one end of a range of scores.
type bound struct {
	score   float64
	without bool // the score itself
}

func parseBound(text string) (b bound, ok bool) {
	text, b.without = strings.CutPrefix(text, "(")
	b.score, ok = parseScore(text)
	return b, ok
}

// parseSpan reads ZRANGE key first last [BYSCORE] [LIMIT offset count] [WITHSCORES].
func parseSpan(args []string) (p span, refused reply) {
	for i := 4; i < len(args); i++ {
		switch option := strings.ToUpper(args[i]); {
		case option == "BYSCORE":
			p.byScore = true
		case option == "WITHSCORES":
			p.scores = true
		case option == "LIMIT" && i+2 < len(args):
			var first, second bool
			p.offset, first = parseInt(args[i+1])
			p.count, second = parseInt(args[i+2])
			if !first || !second {
				return p, refuse(noInteger)
			}
			p.limited, i = true, i+2
		default:
			return p, refuse(syntax)
		}
	}
	first, second := false, false
	switch {
	case p.byScore:
		p.low, first = parseBound(args[2])
		p.high, second = parseBound(args[3])
		if !first || !second {
			return p, refuse("ERR min or max is not a float")
		}
	case p.limited:
		return p, refuse("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX")
	default:
		p.first, first = parseInt(args[2])
		p.last, second = parseInt(args[3])
		if !first || !second {
			return p, refuse(noInteger)
		}
	}
	return p, reply{}
}

// of returns those of the members that are meant.
func (p span) of(members []member) []member {
	n := int64(len(members))
	if !p.byScore {
		first, last := p.first, p.last
		if first < 0 {
			first = max(0, n+first)
		}
		if last < 0 {
			last += n
		}
		if first > last || first >= n {
			return nil
		}
		return members[first : min(last, n-1)+1]
	}
	var found []member
	for _, m := range members {
		if m.score < p.low.score || p.low.without && m.score == p.low.score {
			continue
		}
		if m.score > p.high.score || p.high.without && m.score == p.high.score {
			break
		}
		found = append(found, m)
	}
	if p.limited {
		if p.offset < 0 || p.offset >= int64(len(found)) {
			return nil
		}
		found = found[p.offset:]
		if p.count >= 0 && p.count < int64(len(found)) {
			found = found[:p.count]
		}
	}
	return found
}

func (s *Server) zrange(args []string) reply {
	p, refused := parseSpan(args)
	if refused.kind == failure {
		return refused
	}
	e, _, refused := s.sortedSet(args[1])
	if refused.kind == failure {
		return refused
	}
	var found []reply
	for _, m := range p.of(e.members) {
		found = append(found, text(m.name))
		if p.scores {
			found = append(found, text(formatScore(m.score)))
		}
	}
	return list(found...)
}
