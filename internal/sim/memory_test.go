package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/memory"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/seed"
	"github.com/redlatch/redlatch/internal/sim/server"
)

// twoServers are a node in memory and a server that runs the real scripts, at the same time.
type twoServers struct {
	t      *testing.T
	rng    *rand.Rand
	now    time.Time
	memory driver.Conn
	server *server.Server
	voting script.Script
	// heard are the messages that the node has published, and said those of the server.
	heard chan string
	said  []string
	steps []string
	// before, if set, is called with each command that is about to be sent to both.
	before func(command []string)
}

const (
	runID     = "0123456789012345678901234567890123456789"
	admission = "redlatch:{default}:admitted"
	// endless is a TTL of counters, in ms, that outlasts the test: those of a node in memory last.
	endless = "999999999999"
)

// listening are the clients that are told when a waiter of theirs is woken up; q:b is not there
// any more.
var listening = []string{"p:a", "r:c"}

func newTwoServers(t *testing.T, rng *rand.Rand) *twoServers {
	t.Helper()
	s := &twoServers{t: t, rng: rng, now: time.UnixMicro(1_764_000_000_000_000), voting: script.Voting("default"), heard: make(chan string, 64)}
	clock := func() time.Time { return s.now }
	s.memory = memory.New(clock).Link().Dial()
	s.server = server.New(runID, clock)
	s.server.Publish = func(channel, message string) int {
		if !slices.Contains(listening, strings.TrimPrefix(channel, "redlatch:wake:")) {
			return 0
		}
		s.said = append(s.said, message)
		return 1
	}
	done := make(chan error)
	for _, client := range listening {
		ready := make(chan struct{})
		go func() {
			done <- s.memory.(driver.Listener).Subscribe(context.Background(), "redlatch:wake:"+client, func() { close(ready) }, func(m string) { s.heard <- m })
		}()
		<-ready
	}
	t.Cleanup(func() {
		s.memory.Close()
		for range listening {
			<-done
		}
	})
	for _, text := range []string{script.Releasing.Text, script.ReleasingAll.Text, script.ReleasingShared.Text, script.ReleasingSlot.Text} {
		if _, err := s.server.Exec([]string{"SCRIPT", "LOAD", text}); err != nil {
			t.Fatal(err)
		}
	}
	s.both("EVAL", s.voting.Text, "3", admission, "redlatch:{default}:deployment", "redlatch:{default}:quarantine", script.Admit, s.expected(), "record", "", "+", "", "")
	return s
}

func (s *twoServers) expected() string { return "agreement " + runID + " " + s.server.ReplicationID }

// both sends a command to both, and compares what they answer and whom they wake up.
func (s *twoServers) both(args ...string) {
	s.t.Helper()
	if s.before != nil {
		s.before(args)
	}
	s.steps = append(s.steps, fmt.Sprintf("%v %q", s.now.UnixMicro(), args[1:]))
	want, wantErr := s.server.Exec(args)
	var got driver.Reply
	var err error
	if args[0] == "EVALSHA" {
		n, _ := strconv.Atoi(args[2])
		got, err = s.memory.EvalSHA(context.Background(), args[1], args[3:3+n], args[3+n:])
	} else {
		got, err = s.memory.Do(context.Background(), args...)
	}
	heard := make([]string, 0, len(s.said))
	for range s.said {
		select {
		case m := <-s.heard:
			heard = append(heard, m)
		case <-time.After(20 * time.Second): // it says nothing about how fast
		}
	}
	slices.Sort(heard) // several clients hear beside each other
	slices.Sort(s.said)
	if (wantErr == nil) != (err == nil) || !reflect.DeepEqual(got, want) || !slices.Equal(heard, s.said) || len(s.heard) > 0 {
		s.t.Fatalf("after\n%s\nthe server answers %v, %v and says %q;\nthe node in memory %v, %v and says %q, and %d more",
			strings.Join(s.steps[max(0, len(s.steps)-40):], "\n"), want, wantErr, s.said, got, err, heard, len(s.heard))
	}
	s.said = s.said[:0]
}

func pick[T any](s *twoServers, of ...T) T { return of[s.rng.IntN(len(of))] }

func (s *twoServers) id() string     { return fmt.Sprint("id", s.rng.IntN(5)) }
func (s *twoServers) ttl() string    { return pick(s, "3", "100", "1000", "10000", "30000") }
func (s *twoServers) waiter() string { return pick(s, "p:a/1", "p:a/2", "q:b/1", "r:c/1", "-d/1") }

func side(kind, key string) string { return "redlatch:{" + key + "}:" + kind + ":" + key }

func (s *twoServers) evalSHA(sha string, keys, args []string) {
	s.t.Helper()
	s.both(slices.Concat([]string{"EVALSHA", sha, strconv.Itoa(len(keys))}, keys, args)...)
}

// vote sends a step of the voting script.
func (s *twoServers) vote(keys []string, args ...string) {
	s.t.Helper()
	s.evalSHA(s.voting.SHA, keys, args)
}

// proposed is a counter from a machine whose clock is off by up to some seconds.
func (s *twoServers) proposed() int64 {
	return s.now.UnixMicro() + pick(s, 0, 0, 0, s.rng.Int64N(6_000_000)-3_000_000)
}

func (s *twoServers) acquire(key string) {
	lowest, more := s.proposed(), pick(s, int64(0), 0, 7)
	counter := strconv.FormatInt(lowest+more, 10)
	args := []string{script.Acquire, s.id(), s.ttl(), counter, counter[:len(counter)-6], endless, pick(s, s.expected(), s.expected(), s.expected(), "")}
	rest := []string{pick(s, "*", "=", "", s.waiter(), s.waiter()), pick(s, "", s.id()), strconv.FormatInt(lowest, 10)}
	n := s.rng.IntN(4)
	if more > 0 {
		n = 3
	}
	s.vote([]string{key, side("token", key), admission, side("next", key)}, append(args, rest[:n]...)...)
}

func (s *twoServers) batch() {
	keys := []string{admission}
	names := s.rng.Perm(3)
	wanted := s.rng.IntN(3)
	args := []string{script.Batch, endless, s.expected(), strconv.Itoa(wanted)}
	for i, n := range names {
		key := fmt.Sprint("key", n)
		if i < wanted {
			keys = append(keys, key, side("token", key), side("next", key))
			args = append(args, s.id(), s.ttl(), strconv.FormatInt(s.proposed(), 10))
		} else {
			keys = append(keys, key, side("next", key))
			args = append(args, s.id())
		}
	}
	s.vote(keys, args...)
}

func (s *twoServers) extendBatch() {
	keys, args := []string{admission}, []string{script.ExtendBatch, endless, s.expected()}
	for _, n := range s.rng.Perm(3) {
		key := fmt.Sprint("key", n)
		keys = append(keys, key, side("token", key))
		args = append(args, s.id(), s.ttl(), strconv.FormatInt(s.proposed(), 10))
	}
	s.vote(keys, args...)
}

func (s *twoServers) release(key string) {
	keys := []string{key, side("token", key), side("next", key)}
	args := []string{s.id(), pick(s, "0", strconv.FormatInt(s.proposed(), 10)), endless}
	switch s.rng.IntN(5) {
	case 0:
		args = append(args, ">")
	case 1:
		args = append(args, s.waiter(), pick(s, "0", "1764000000000000"))
	}
	s.evalSHA(script.Releasing.SHA, keys, args)
}

// together sends a step for several keys, in any order.
func (s *twoServers) together() {
	var keys []string
	for _, n := range s.rng.Perm(3)[:2+s.rng.IntN(2)] {
		key := fmt.Sprint("key", n)
		keys = append(keys, key, side("token", key), side("next", key))
	}
	voting, counter := append(slices.Clone(keys), admission), strconv.FormatInt(s.proposed(), 10)
	switch s.rng.IntN(5) {
	case 0, 1:
		args := []string{script.AcquireAll, s.id(), s.ttl(), counter, counter[:len(counter)-6], endless, pick(s, s.expected(), s.expected(), s.expected(), "")}
		args = append(args, pick(s, "*", "", s.waiter(), s.waiter()), pick(s, "", s.id()), pick(s, "0", "1", "1764000000000001", counter))
		if s.rng.IntN(2) == 0 {
			args = append(args, pick(s, "", s.id()), s.id()) // who transfer the further keys
		}
		s.vote(voting, args...)
	case 2:
		s.vote(voting, script.ExtendAll, s.id(), s.ttl(), counter, endless, pick(s, s.expected(), "other"))
	default:
		args := []string{s.id(), pick(s, "0", counter), endless}
		if s.rng.IntN(2) == 0 {
			args = append(args, s.waiter(), pick(s, "0", "1764000000000000"))
		}
		s.evalSHA(script.ReleasingAll.SHA, keys, args)
	}
}

// permit sends a step for one of several permits, of which there are not always as many.
func (s *twoServers) permit() {
	const queue = "redlatch:{p}:permit::p"
	next := "redlatch:{p}:next:" + queue
	counter, k := strconv.FormatInt(s.proposed(), 10), pick(s, 2, 3)
	slot := fmt.Sprintf("redlatch:{p}:permit:%d:p", s.rng.IntN(3))
	switch s.rng.IntN(8) {
	case 0, 1, 2:
		s.vote([]string{queue, admission, next}, script.Slot, s.id(), s.ttl(), counter, counter[:len(counter)-6], endless, pick(s, s.expected(), s.expected(), s.expected(), ""),
			pick(s, "*", "", s.waiter(), s.waiter()), strconv.Itoa(k), strconv.Itoa(s.rng.IntN(k)))
	case 3, 4:
		s.vote([]string{queue, admission, next}, script.EnqueueSlot, s.waiter(), pick(s, "0", "0", "1764000000000000"), pick(s, s.expected(), s.expected(), ""), strconv.Itoa(k))
	case 5:
		s.vote([]string{slot, "redlatch:{p}:token:" + slot, admission}, script.Extend, s.id(), s.ttl(), counter, endless, s.expected())
	default:
		args := []string{s.id(), pick(s, "0", counter), endless}
		if slot = pick(s, slot, slot, queue); slot == queue {
			args[1] = "0"
		}
		if s.rng.IntN(2) == 0 {
			args = append(args, s.waiter(), pick(s, "0", "1764000000000000"))
		}
		if s.rng.IntN(4) == 0 {
			slot, args = queue, []string{s.waiter(), "0", endless}
			args = append(args, args[0], "0") // a waiter leaves
		}
		s.evalSHA(script.ReleasingSlot.SHA, []string{slot, "redlatch:{p}:token:" + slot, queue, next}, args)
	}
}

// step has something happen.
func (s *twoServers) step() {
	key := fmt.Sprint("key", s.rng.IntN(3))
	s.now = s.now.Add(pick(s, 0, 0, 0, 300*time.Microsecond, time.Millisecond, 40*time.Millisecond, 499*time.Millisecond, time.Second, 6*time.Second))
	switch s.rng.IntN(30) {
	case 0, 1, 2:
		s.acquire(key)
	case 3, 4, 5:
		s.release(key)
	case 6:
		s.vote([]string{key, side("token", key), admission}, script.Extend, s.id(), s.ttl(), strconv.FormatInt(s.proposed(), 10), endless, pick(s, s.expected(), "other"))
	case 7, 8, 9:
		s.vote([]string{key, admission, side("next", key)}, script.Enqueue, s.waiter(), pick(s, "0", "0", "1764000000000000", "1764000060000000"), pick(s, s.expected(), s.expected(), ""))
	case 10:
		s.batch()
	case 11:
		s.extendBatch()
	case 12:
		s.both("GET", key)
		s.both("EVAL", script.Look.Text, "2", key, side("token", key))
		s.both("PTTL", key)
	case 13, 14, 15, 16, 17, 18, 19, 20:
		s.readers(key)
	case 21, 22, 23, 24:
		s.together()
	default:
		s.permit()
	}
}

// A node in memory answers as a server that runs the scripts.
func TestMemoryAnswersAsTheScripts(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	for range 60 {
		s := newTwoServers(t, rng)
		for range 500 {
			s.step()
		}
	}
}
