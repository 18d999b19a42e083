package sim

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/seed"
	"github.com/redlatch/redlatch/internal/sim/server"
)

const nonLocal = "Script attempted to access a non local key"

// moving makes a script end where it accesses a key that is not there, as a master of a Redis Cluster does in a slot
// that it is giving away (Redis source, scriptVerifyClusterState and getNodeByQuery).
const moving = `local server, redis = redis, {}
local function gone(command, ...)
  local keys = {...}
  command = string.upper(command)
  if command == 'TIME' or command == 'INFO' or command == 'PUBLISH' then
    return false
  end
  for i = 1, (command == 'MGET' or command == 'DEL') and #keys or 1 do
    if server.call('PTTL', keys[i]) == -2 then
      return true
    end
  end
  return false
end
function redis.call(...)
  if gone(...) then
    error('` + nonLocal + `')
  end
  return server.call(...)
end
function redis.pcall(...)
  if gone(...) then
    return {err = '` + nonLocal + `'}
  end
  return server.pcall(...)
end
redis.error_reply, redis.status_reply = server.error_reply, server.status_reply
`

// midway tries the commands of twoServers in a slot that is being moved.
type midway struct {
	*twoServers
	// giver is the master that gives the slot away, and whole has all of the slot. straight has the command to itself, as if
	// nothing were moved.
	giver, whole, straight *server.Server
	ended                  map[string]int // by the step
}

func newMidway(t *testing.T, rng *rand.Rand) *midway {
	t.Helper()
	m := &midway{twoServers: newTwoServers(t, rng), ended: make(map[string]int)}
	start := func() *server.Server {
		s := server.New(runID, func() time.Time { return m.now })
		s.ReplicationID = m.server.ReplicationID
		s.Publish = func(string, string) int { return 1 }
		return s
	}
	m.giver, m.whole, m.straight = start(), start(), start()
	m.giver.Edit = func(text string) string { return moving + text }
	for _, s := range []*server.Server{m.giver, m.whole, m.straight} {
		for _, text := range []string{m.voting.Text, script.Releasing.Text, script.ReleasingAll.Text, script.ReleasingShared.Text} {
			if _, err := s.Exec([]string{"SCRIPT", "LOAD", text}); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.before = m.try
	return m
}

// try has the command come to a master that has given some of the keys away. If it ends the script, the client
// hears nothing: when the slot is moved it tries a release again, and releases what it wanted to acquire.
func (m *midway) try(command []string) {
	if command[0] != "EVALSHA" {
		return
	}
	n, _ := strconv.Atoi(command[2])
	keys, args := command[3:3+n], command[3+n:]
	had := m.server.Snapshot()
	for _, key := range keys {
		if !m.server.Has(key) {
			return // TRYAGAIN
		}
	}
	stays, gone := maps.Clone(had), maps.Clone(had)
	for _, key := range slices.Sorted(maps.Keys(had)) {
		if slices.Contains(keys, key) || m.rng.IntN(2) == 0 {
			delete(gone, key)
		} else {
			delete(stays, key)
		}
	}
	m.giver.Load(stays)
	if _, err := m.giver.Exec(command); err == nil || !strings.Contains(err.Error(), nonLocal) {
		return
	}
	have := m.giver.Snapshot()
	maps.Copy(have, gone)
	m.whole.Load(have)
	step, id, undo := m.undo(command[1], keys, args)
	m.ended[step]++
	if undo != nil {
		if _, err := m.whole.Exec(undo); err != nil {
			m.t.Fatal(err)
		}
	}
	m.judge(command, had, id, strings.HasSuffix(step, "shared"))
	if strings.HasPrefix(step, "release") && len(args) == 3 { // a waiter's attempt comes back by itself
		m.straight.Load(had)
		if _, err := m.straight.Exec(command); err != nil {
			m.t.Fatal(err)
		}
		m.judgeTurn(command)
	}
}

// judgeTurn looks whether somebody has been woken up for each key for which somebody is without the move.
func (m *midway) judgeTurn(command []string) {
	m.t.Helper()
	for n := range 3 {
		key := "key" + strconv.Itoa(n)
		want, _ := m.straight.Value(side("next", key))
		got, _ := m.whole.Value(side("next", key))
		if slices.Contains(command, key) && strings.Contains(want, " ") && !strings.Contains(got, " ") {
			m.t.Fatalf("nobody is woken up for %s, but next says %q in place of %q, after\n%q\nended midway", key, got, want, command)
		}
	}
}

// undo returns what the step is called, whose it is, and what its client sends then, nil for nothing.
func (m *midway) undo(sha string, keys, args []string) (step, id string, undo []string) {
	release := func(s script.Script, id string, keys ...string) []string {
		return slices.Concat([]string{"EVALSHA", s.SHA, strconv.Itoa(len(keys))}, keys, []string{id, "0", endless})
	}
	switch {
	case sha == script.Releasing.SHA:
		return "release", args[0], release(script.Releasing, args[0], keys...)
	case sha == script.ReleasingAll.SHA:
		return "release all", args[0], release(script.ReleasingAll, args[0], keys...)
	case sha == script.ReleasingShared.SHA:
		return "release shared", args[0], release(script.ReleasingShared, args[0], keys...)
	case args[0] == script.Acquire:
		return "acquire", args[1], release(script.Releasing, args[1], keys[0], keys[1], keys[3])
	case args[0] == script.AcquireShared:
		return "acquire shared", args[1], release(script.ReleasingShared, args[1], keys[0], keys[1], keys[3], keys[4])
	case args[0] == script.AcquireAll:
		return "acquire all", args[1], release(script.ReleasingAll, args[1], keys[:len(keys)-1]...)
	}
	return "another", "", nil
}

// judge looks for what is left of the step on the whole slot, and whether others have what they had.
func (m *midway) judge(command []string, had server.Data, id string, reader bool) {
	m.t.Helper()
	has := m.whole.Data()
	for n := range 3 {
		key := "key" + strconv.Itoa(n)
		before, was := had.Value(key, m.now)
		now, is := has.Value(key, m.now)
		shared := strings.HasPrefix(now, "redlatch:shared ")
		readers := has.Scores(side("readers", key), m.now)
		_, reads := readers[id]
		holds := is && now == id
		if reader {
			holds = reads && m.reads(has, key, id)
		}
		switch {
		case id != "" && slices.Contains(command, key) && holds:
			m.t.Fatalf("%q has %s after\n%q\nended midway", id, key, command)
		case is && shared && len(readers) == 0:
			m.t.Fatalf("readers have %s, and there are none, after\n%q\nended midway", key, command)
		case was && before != id && !strings.HasPrefix(before, "redlatch:shared ") && now != before && !slices.Contains(command, before):
			m.t.Fatalf("%q has lost %s to %q after\n%q\nended midway", before, key, now, command)
		}
		for reader := range had.Scores(side("readers", key), m.now) {
			if _, still := readers[reader]; !still && reader != id && m.reads(had, key, reader) {
				m.t.Fatalf("the reader %q has lost %s after\n%q\nended midway", reader, key, command)
			}
		}
	}
}

// reads reports whether a reader's time on key is not over.
func (m *midway) reads(data server.Data, key, reader string) bool {
	value, _ := data.Value(key, m.now)
	scores := data.Scores(side("readers", key), m.now)
	last := slices.Max(slices.Collect(maps.Values(scores)))
	left := data.Expires(key).Sub(m.now) - time.Duration(last-scores[reader])*time.Millisecond
	return strings.HasPrefix(value, "redlatch:shared ") && left > 2*time.Millisecond
}

// A script that a Cluster's master ends midway leaves nothing for which nobody is responsible: when its client has undone
// it, or done it again, it has nothing, and others have what they had.
func TestScriptsThatEndMidway(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	all := make(map[string]int)
	for range 60 {
		m := newMidway(t, rng)
		for range 500 {
			m.step()
		}
		for step, n := range m.ended {
			all[step] += n
		}
	}
	for _, step := range []string{"acquire shared", "release", "release all", "release shared"} {
		if all[step] == 0 {
			t.Errorf("%s never ended midway", step)
		}
	}
	t.Logf("ended midway: %v", all)
}
