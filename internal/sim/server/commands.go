package server

import (
	"slices"
	"strconv"
	"strings"
)

// command is a command of Redis 7, as far as the lock's scripts and clients use it.
type command struct {
	// arity is the number of words, the least if negative.
	arity  int
	writes bool
	run    func(s *Server, args []string) reply
}

func (c *command) takes(words int) bool {
	return words == c.arity || c.arity < 0 && words >= -c.arity
}

var commands = map[string]*command{
	"PING":      {-1, false, func(*Server, []string) reply { return reply{kind: status, text: "PONG"} }},
	"TIME":      {1, false, (*Server).time},
	"INFO":      {-1, false, (*Server).info},
	"CONFIG":    {-2, false, (*Server).config},
	"CLUSTER":   {-2, false, (*Server).cluster},
	"PUBLISH":   {3, false, (*Server).publish},
	"SUBSCRIBE": {-2, false, func(*Server, []string) reply { return ok }},
	"FLUSHALL":  {-1, true, func(s *Server, _ []string) reply { s.FlushAll(); return ok }},
	"KEYS":      {2, false, (*Server).keys},
	"GET":       {2, false, (*Server).get},
	"MGET":      {-2, false, (*Server).mget},
	"SET":       {-3, true, (*Server).set},
	"PSETEX":    {4, true, (*Server).psetex},
	"DEL":       {-2, true, (*Server).del},
	"PTTL":      {2, false, (*Server).pttl},
	"PEXPIRE":   {-3, true, (*Server).pexpire},
	"ZADD":      {-4, true, (*Server).zadd},
	"ZREM":      {-3, true, (*Server).zrem},
	"ZRANGE":    {-4, false, (*Server).zrange},
	"ZSCORE":    {3, false, (*Server).zscore},
	"ZRANK":     {-3, false, (*Server).zrank},
	"RPUSH":     {-3, true, (*Server).rpush},
}

// lookup returns the command of a name, nil for none.
func lookup(name string) *command {
	if c, ok := commands[name]; ok {
		return c
	}
	return commands[strings.ToUpper(name)]
}

func (s *Server) time([]string) reply {
	return list(text(strconv.FormatInt(s.now.Unix(), 10)), text(strconv.Itoa(s.now.Nanosecond()/1000)))
}

// cluster is CLUSTER NODES.
func (s *Server) cluster(args []string) reply {
	switch {
	case s.Nodes == nil:
		return refuse("ERR This instance has cluster support disabled")
	case !strings.EqualFold(args[1], "NODES"):
		return refuse("ERR unknown subcommand '" + args[1] + "'. Try CLUSTER HELP.")
	}
	return text(s.Nodes())
}

// keyWords returns the keys among the words of a command.
func keyWords(words []string) []string {
	switch strings.ToUpper(words[0]) {
	case "PING", "TIME", "INFO", "CONFIG", "CLUSTER", "PUBLISH", "KEYS":
		return nil
	case "MGET", "DEL":
		return words[1:]
	}
	return words[1:2]
}

func (s *Server) publish(args []string) reply {
	if s.Publish == nil {
		return number(0)
	}
	return count(s.Publish(args[1], args[2]))
}

// config is CONFIG GET of one parameter.
func (s *Server) config(args []string) reply {
	if len(args) != 3 || !strings.EqualFold(args[1], "GET") {
		return refuse(syntax)
	}
	value := ""
	switch args[2] {
	case "no-appendfsync-on-rewrite":
		value = "no"
	case "appendfsync":
		if value = s.AppendFsync; value == "" {
			value = "everysec"
		}
	default:
		return list()
	}
	return list(text(args[2]), text(value))
}

// keys is KEYS *.
func (s *Server) keys([]string) reply {
	var names []reply
	for key := range s.data {
		if _, ok := s.find(key); ok {
			names = append(names, text(key))
		}
	}
	return list(names...)
}

func (s *Server) rpush(args []string) reply {
	e, found := s.find(args[1])
	if found && e.kind != otherValue {
		return refuse(wrongType)
	}
	e.kind, e.members = otherValue, slices.Concat(e.members, make([]member, len(args)-2))
	s.data[args[1]] = e
	return count(len(e.members))
}
