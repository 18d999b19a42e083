package sim

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
)

// Server is the model of one server process: what it does with the commands and
// scripts that the lock uses. Clock is its wall clock; nothing else moves it.
type Server struct {
	RunID string
	// ReplicationID is master_replid, and Received what it has received as a replica.
	ReplicationID string
	Received      int64
	Version       string
	Clock         func() time.Time
	// Started is when it came up, by its own clock.
	Started time.Time
	// Replica: it refuses writes. Offset is second_repl_offset of INFO, -1
	// unless it was a replica before it was a master.
	Replica bool
	Offset  int64
	// Replicas is how many replicas it has.
	Replicas int
	// AppendFsync is "" without an append-only file, else its policy.
	AppendFsync string
	Mutation    Mutation
	// Publish delivers a message and returns how many listen; nil for nobody.
	Publish func(channel, message string) int

	keys    map[string]entry
	scripts map[string]string // by SHA1
	flushes int
}

// entry is a key's value. list stands for any type but a string.
type entry struct {
	value   string
	list    bool
	places  []place // of a sorted set
	expires int64   // in ms of the server's clock, 0 for never
}

// NewServer returns an empty server that has just come up.
func NewServer(run string, now func() time.Time) *Server {
	return &Server{
		RunID: run, ReplicationID: sha("replication of " + run), Version: "7.4.0", Clock: now, Started: now(), Offset: -1,
		keys: make(map[string]entry), scripts: make(map[string]string),
	}
}

// FlushAll deletes all keys, as the command of that name.
func (s *Server) FlushAll() {
	clear(s.keys)
	s.flushes++
}

// FlushScripts empties the script cache.
func (s *Server) FlushScripts() { clear(s.scripts) }

// SetList makes key one of another type than a string.
func (s *Server) SetList(key string) { s.keys[key] = entry{list: true} }

// Keys returns the names of the keys that are there, in no order.
func (s *Server) Keys() []string {
	var keys []string
	now := s.Clock().UnixMilli()
	for key := range s.keys {
		if _, ok := s.find(key, now); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// Value returns the string at key, if there is one.
func (s *Server) Value(key string) (string, bool) {
	e, ok := s.find(key, s.Clock().UnixMilli())
	return e.value, ok && !e.list
}

// has reports whether there is anything at key.
func (s *Server) has(key string) bool {
	_, ok := s.find(key, s.Clock().UnixMilli())
	return ok
}

// snapshot returns a copy of the keys.
func (s *Server) snapshot() map[string]entry {
	keys := make(map[string]entry, len(s.keys))
	maps.Copy(keys, s.keys)
	return keys
}

// find returns the entry at key. A key is gone when the clock is past its
// expiry (Redis source, keyIsExpired).
func (s *Server) find(key string, now int64) (entry, bool) {
	e, ok := s.keys[key]
	if ok && e.expires != 0 && now > e.expires {
		delete(s.keys, key)
		return entry{}, false
	}
	return e, ok
}

func refuse(text string) (driver.Reply, error) {
	return driver.Reply{}, &driver.ServerError{Text: text}
}

func integer(n int64) (driver.Reply, error) {
	return driver.Reply{Kind: driver.Int, Int: n}, nil
}

func text(s string) driver.Reply { return driver.Reply{Kind: driver.Text, Text: s} }

const (
	wrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"
	readOnly  = "READONLY You can't write against a read only replica."
	noScript  = "NOSCRIPT No matching script. Please use EVAL."
)

// Exec executes one command.
func (s *Server) Exec(args []string) (driver.Reply, error) {
	now := s.Clock()
	switch strings.ToUpper(args[0]) {
	case "SUBSCRIBE":
		return text("OK"), nil
	case "PING":
		return text("PONG"), nil
	case "GET":
		e, ok := s.find(args[1], now.UnixMilli())
		switch {
		case !ok:
			return driver.Reply{}, nil
		case e.list:
			return refuse(wrongType)
		}
		return text(e.value), nil
	case "DEL":
		_, ok := s.find(args[1], now.UnixMilli())
		delete(s.keys, args[1])
		if ok {
			return integer(1)
		}
		return integer(0)
	case "SET":
		return s.set(now, args[1:])
	case "CONFIG":
		if args[2] == "no-appendfsync-on-rewrite" {
			return driver.Reply{Kind: driver.Array, Array: []driver.Reply{text(args[2]), text("no")}}, nil
		}
		// CONFIG GET appendfsync
		policy := s.AppendFsync
		if policy == "" {
			policy = "everysec"
		}
		return driver.Reply{Kind: driver.Array, Array: []driver.Reply{text("appendfsync"), text(policy)}}, nil
	case "EVAL":
		body := args[1]
		s.scripts[sha(body)] = body
		return s.script(now, body, args[2:])
	case "EVALSHA":
		body, ok := s.scripts[strings.ToLower(args[1])]
		if !ok {
			return refuse(noScript)
		}
		return s.script(now, body, args[2:])
	}
	panic(fmt.Sprintf("sim: the model knows no command %q", args[0]))
}

// set is SET key value EX seconds.
func (s *Server) set(now time.Time, args []string) (driver.Reply, error) {
	if s.Replica {
		return refuse(readOnly)
	}
	e := entry{value: args[1]}
	for i := 2; i < len(args); i += 2 {
		n, err := strconv.ParseInt(args[i+1], 10, 64)
		if err != nil || args[i] != "EX" {
			panic(fmt.Sprintf("sim: the model knows no SET %q", args))
		}
		e.expires = now.UnixMilli() + 1000*n
	}
	s.keys[args[0]] = e
	return text("OK"), nil
}

// info is what INFO says, as far as anybody looks.
func (s *Server) info(now time.Time) string {
	role, aof := "master", 0
	if s.Replica {
		role = "slave"
	}
	if s.AppendFsync != "" {
		aof = 1
	}
	offset, uptime := s.Offset, now.Unix()-s.Started.Unix()
	switch s.Mutation {
	case UptimeLies:
		uptime = 1 << 20
	case PromotionHidden:
		offset = -1
	}
	b := fmt.Appendf(nil, "redis_version:%s\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\nrole:%s\r\nconnected_slaves:%d\r\nmaster_replid:%s\r\ntotal_net_repl_input_bytes:%d\r\nsecond_repl_offset:%d\r\naof_enabled:%d\r\n"+
		"maxmemory:0\r\nmaxmemory_policy:noeviction\r\n", s.Version, s.RunID, max(0, uptime), role, s.Replicas, s.ReplicationID, s.Received, offset, aof)
	if s.flushes > 0 {
		b = fmt.Appendf(b, "cmdstat_flushall:calls=%d\r\n", s.flushes)
	}
	return string(b)
}

// flushed is how often all keys were deleted, as admit.lua has it.
func (s *Server) flushed() string {
	if s.flushes == 0 {
		return "+"
	}
	return fmt.Sprintf("calls=%d+", s.flushes)
}
