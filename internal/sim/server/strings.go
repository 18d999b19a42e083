package server

import (
	"math"
	"strconv"
	"strings"
)

// parseInt reads an integer as Redis does: without a sign of plus, leading zeros or spaces.
func parseInt(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == s
}

func (s *Server) get(args []string) reply {
	e, ok := s.find(args[1])
	switch {
	case !ok:
		return reply{}
	case e.kind != stringValue:
		return refuse(wrongType)
	}
	return text(e.value)
}

func (s *Server) mget(args []string) reply {
	values := make([]reply, len(args)-1)
	for i, key := range args[1:] {
		if e, ok := s.find(key); ok && e.kind == stringValue {
			values[i] = text(e.value)
		}
	}
	return list(values...)
}

// expiry is when something expires that is given n of a unit from now.
func (s *Server) expiry(n string, unit int64, command string) (at int64, refused reply) {
	given, ok := parseInt(n)
	now := s.now.UnixMilli()
	switch {
	case !ok:
		return 0, refuse(noInteger)
	case given <= 0 || given > math.MaxInt64/unit || given*unit > math.MaxInt64-now:
		return 0, refuse("ERR invalid expire time in '" + command + "' command")
	}
	return now + given*unit, reply{}
}

// set is SET key value [NX | XX] [GET] [EX seconds | PX ms | KEEPTTL].
func (s *Server) set(args []string) reply {
	key, value := args[1], args[2]
	var absent, present, get, keep bool
	unit, lasts := int64(0), ""
	for i := 3; i < len(args); i++ {
		option, more := strings.ToUpper(args[i]), i+1 < len(args)
		switch {
		case option == "NX" && !present:
			absent = true
		case option == "XX" && !absent:
			present = true
		case option == "GET":
			get = true
		case option == "KEEPTTL" && unit == 0:
			keep = true
		case option == "PX" && more && !keep && unit != 1000:
			unit, i = 1, i+1
			lasts = args[i]
		case option == "EX" && more && !keep && unit != 1:
			unit, i = 1000, i+1
			lasts = args[i]
		default:
			return refuse(syntax)
		}
	}
	next := entry{value: value}
	if unit != 0 {
		at, refused := s.expiry(lasts, unit, "set")
		if refused.kind == failure {
			return refused
		}
		next.expires = at
	}
	before, found := s.find(key)
	answer := ok
	if get {
		if answer = s.get([]string{"GET", key}); answer.kind == failure {
			return answer
		}
	}
	if absent && found || present && !found {
		if get {
			return answer
		}
		return reply{}
	}
	if keep {
		next.expires = before.expires
	}
	s.data[key] = next
	return answer
}

func (s *Server) psetex(args []string) reply {
	at, refused := s.expiry(args[2], 1, "psetex")
	if refused.kind == failure {
		return refused
	}
	s.data[args[1]] = entry{value: args[3], expires: at}
	return ok
}

func (s *Server) del(args []string) reply {
	deleted := 0
	for _, key := range args[1:] {
		if _, ok := s.find(key); ok {
			delete(s.data, key)
			deleted++
		}
	}
	return count(deleted)
}

func (s *Server) pttl(args []string) reply {
	e, ok := s.find(args[1])
	switch {
	case !ok:
		return number(-2)
	case e.expires == 0:
		return number(-1)
	}
	return number(max(0, e.expires-s.now.UnixMilli()))
}

// pexpire is PEXPIRE key ms [NX | XX | GT | LT].
func (s *Server) pexpire(args []string) reply {
	var absent, present, later, sooner bool
	for _, option := range args[3:] {
		switch strings.ToUpper(option) {
		case "NX":
			absent = true
		case "XX":
			present = true
		case "GT":
			later = true
		case "LT":
			sooner = true
		default:
			return refuse("ERR Unsupported option " + option)
		}
	}
	switch {
	case absent && (present || later || sooner):
		return refuse("ERR NX and XX, GT or LT options at the same time are not compatible")
	case later && sooner:
		return refuse("ERR GT and LT options at the same time are not compatible")
	}
	given, valid := parseInt(args[2])
	if !valid {
		return refuse(noInteger)
	}
	e, ok := s.find(args[1])
	now := s.now.UnixMilli()
	if given > 0 && now > math.MaxInt64-given {
		return refuse("ERR invalid expire time in 'pexpire' command")
	}
	at := now + given
	// GT and LT count a key without an expiry as living for ever.
	switch {
	case !ok, absent && e.expires != 0, present && e.expires == 0,
		later && (e.expires == 0 || at <= e.expires), sooner && e.expires != 0 && at >= e.expires:
		return number(0)
	case at <= now:
		delete(s.data, args[1])
		return number(1)
	}
	e.expires = at
	s.data[args[1]] = e
	return number(1)
}
