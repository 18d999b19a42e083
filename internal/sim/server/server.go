// Package server is a Redis server in memory, as far as the lock's scripts and
// clients use one. It runs the text of the scripts, under a Lua interpreter, and
// its clock moves only as its maker says.
package server

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
)

// Server is one server process. It is not safe for concurrent use.
type Server struct {
	RunID string
	// ReplicationID is master_replid, and Received what it has received as a replica.
	ReplicationID string
	Received      int64
	Version       string
	// Clock is its wall clock.
	Clock func() time.Time
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
	// Publish delivers a message and returns how many listen; nil for nobody.
	Publish func(channel, message string) int
	// Edit returns the text to run of a script that was sent; nil for the same.
	Edit func(text string) string

	// Nodes is the answer to CLUSTER NODES; nil where the server is not part of a Cluster. Local returns why a
	// script may not access these keys of its slot, "" where it may; nil for all keys.
	Nodes func() string
	Local func(keys []string) (refusal string)

	// Writes counts the commands that have written.
	Writes int

	data    Data
	scripts map[string]*program // by SHA1
	flushes int
	// reset: the statistics were reset.
	reset bool
	now   time.Time // while a command is executed, the time at its start
}

// New returns an empty server that has just come up.
func New(run string, now func() time.Time) *Server {
	return &Server{
		RunID: run, ReplicationID: SHA("replication of " + run), Version: "7.4.0", Clock: now, Started: now(), Offset: -1,
		data: make(Data), scripts: make(map[string]*program),
	}
}

var shas sync.Map // of string by text

// SHA is the SHA1 of a text in hexadecimal, by which a server knows a script.
func SHA(text string) string {
	if name, ok := shas.Load(text); ok {
		return name.(string)
	}
	sum := sha1.Sum([]byte(text))
	name := hex.EncodeToString(sum[:])
	shas.Store(text, name)
	return name
}

// Load replaces all keys by a copy of data.
func (s *Server) Load(data Data) {
	if s.data = maps.Clone(data); s.data == nil {
		s.data = make(Data)
	}
}

// Snapshot returns a copy of all keys.
func (s *Server) Snapshot() Data { return maps.Clone(s.data) }

// FlushAll deletes all keys, as the command of that name.
func (s *Server) FlushAll() {
	clear(s.data)
	s.flushes++
}

// ResetStats resets what INFO counts, as CONFIG RESETSTAT.
func (s *Server) ResetStats() { s.flushes, s.Received, s.reset = 0, 0, true }

// FlushScripts empties the script cache.
func (s *Server) FlushScripts() { clear(s.scripts) }

// Value returns the string at key, if there is one.
func (s *Server) Value(key string) (string, bool) { return s.data.Value(key, s.Clock()) }

// Has reports whether there is anything at key.
func (s *Server) Has(key string) bool {
	_, ok := s.data.live(key, s.Clock().UnixMilli())
	return ok
}

// Expires is when the key expires by the server's clock, long ago for one that is not there
// or does not.
func (s *Server) Expires(key string) time.Time { return s.data.Expires(key) }

// Data is what the server has now. It does not change it.
func (s *Server) Data() Data { return s.data }

// Endless lists the keys that do not expire, in order.
func (s *Server) Endless() []string {
	var keys []string
	for key, e := range s.data {
		if e.expires == 0 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Len is the number of keys, of which some may have expired.
func (s *Server) Len() int { return len(s.data) }

// Exec executes one command. The error is what the server refuses it with.
func (s *Server) Exec(args []string) (driver.Reply, error) {
	s.now = s.Clock()
	var r reply
	switch strings.ToUpper(args[0]) {
	case "EVAL":
		r = s.eval(args[1:])
	case "EVALSHA":
		r = s.evalSHA(args[1:])
	case "SCRIPT":
		r = s.script(args[1:])
	default:
		r = s.command(args)
	}
	if r.kind == failure {
		return driver.Reply{}, &driver.ServerError{Text: r.text}
	}
	return r.toDriver(), nil
}

// command executes what is no script.
func (s *Server) command(args []string) reply {
	c := lookup(args[0])
	switch {
	case c == nil:
		return refuse(fmt.Sprintf("ERR unknown command '%s', with args beginning with: %s", args[0], beginning(args[1:])))
	case !c.takes(len(args)):
		return refuse("ERR wrong number of arguments for '" + strings.ToLower(args[0]) + "' command")
	case c.writes && s.Replica:
		return refuse(readOnly)
	}
	return s.runs(c, args)
}

// runs runs a command, and counts it if it writes.
func (s *Server) runs(c *command, args []string) reply {
	r := c.run(s, args)
	if c.writes && r.kind != failure && (r.kind != integer || r.int > 0) {
		s.Writes++
	}
	return r
}

func beginning(args []string) string {
	var b strings.Builder
	for _, arg := range args {
		fmt.Fprintf(&b, "'%s' ", arg)
	}
	return b.String()
}
