package node

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/vote"
)

// acknowledging is a connection to a server whose replicas acknowledge everything.
type acknowledging struct {
	driver.Conn
	history string
}

func (a *acknowledging) Batch(context.Context, ...[]string) ([]driver.Reply, []error) {
	return []driver.Reply{{Text: a.history}, {Kind: driver.Int, Int: 1}}, make([]error, 2)
}

// Replicas acknowledge what their master has. A vote counts only if that has not been another
// server, or a replica, since it voted. If it has, the server is looked at anew before the next vote.
func TestReplicasOfAnotherHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		voted := (&evidence{info: info{"run_id": "a", "master_replid": "r"}}).history()
		for history, counts := range map[string]bool{"a r": true, "b r": false, "a s": false, "": false} {
			conn := &acknowledging{history: history}
			n := New(nil, Options{slotTag: "7", Replicas: Replicas{Conn: conn, Want: 1, Limit: time.Second}})
			n.link.connected.Store(1)
			err := n.acknowledged(t.Context(), &sighting{run: "a", history: voted})
			trusted := n.link.connected.Load() == 1
			_, other := errors.AsType[*historyError](err)
			if counts != (err == nil) || counts == other || counts != trusted {
				t.Errorf("the master has the history %q: %v, and is trusted: %t", history, err, trusted)
			}
			n.end()
			n.background.Wait()
		}
	})
}

// A grant counts when replicas have acknowledged it, in whatever form the server answers: with the counter alone, or
// with what there is to say of a transfer, of waiters and of slots. What is no grant is not asked about.
func TestEachGrantIsAcknowledged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		number := func(n int64) driver.Reply { return driver.Reply{Kind: driver.Int, Int: n} }
		array := func(parts ...driver.Reply) driver.Reply { return driver.Reply{Kind: driver.Array, Array: parts} }
		acquire := func(n *Node) vote.Answer {
			return n.Acquire(t.Context(), vote.Acquire{Key: "x", ID: "mine", TTL: time.Second, Proposed: 7})
		}
		for name, c := range map[string]struct {
			reply driver.Reply
			step  func(*Node) vote.Answer
			want  vote.Verdict
		}{
			"granted":           {number(7), acquire, vote.NotReplicated},
			"granted, and more": {array(number(7), number(0), number(1)), acquire, vote.NotReplicated},
			"a slot is granted": {array(number(7), number(0), number(0)), func(n *Node) vote.Answer {
				return n.Choose(t.Context(), vote.Acquire{Key: "x", ID: "mine", TTL: time.Second, Proposed: 7, Slots: 2})
			}, vote.NotReplicated},
			"extended": {number(1), func(n *Node) vote.Answer {
				return n.Extend(t.Context(), vote.Extend{Key: "x", ID: "mine", TTL: time.Second})
			}, vote.NotReplicated},
			"granted, with batches": {number(7), func(n *Node) vote.Answer {
				return Batch(n, -1).Acquire(t.Context(), vote.Acquire{Key: "x", ID: "mine", TTL: time.Second, Proposed: 7})
			}, vote.NotReplicated},
			"held": {array(driver.Reply{Kind: driver.Text, Text: "theirs"}, number(5)), acquire, vote.Held},
		} {
			n := New(&renewed{scripted: scripted{answer: released}, reply: c.reply}, Options{
				Name: "n", Census: NewCensus([]string{"n"}), Agreement: admission.Agreement{Deployment: "d", Nodes: []string{"n"}, MaxTTL: time.Second, NoQuarantine: true},
				ConnectTimeout: time.Second, Patience: time.Second, Logger: slog.New(slog.DiscardHandler),
				Replicas: Replicas{Conn: &acknowledging{history: strings.Repeat("r", 40) + " " + strings.Repeat("i", 40)}, Want: 2, Limit: time.Second},
			})
			a := c.step(n)
			few, _ := errors.AsType[*ReplicasError](a.Err)
			if a.Verdict != c.want || c.want == vote.NotReplicated && (few == nil || few.Acknowledged != 1) {
				t.Errorf("%s, acknowledged by one of two: %v, %v", name, a.Verdict, a.Err)
			}
			n.end()
			n.background.Wait()
		}
	})
}

// synced is a connection whose server answers WAITAOF.
type synced struct {
	driver.Conn
	answer []driver.Reply
	wait   error
	sent   []string
}

func (s *synced) Batch(_ context.Context, commands ...[]string) ([]driver.Reply, []error) {
	replies, errs := make([]driver.Reply, len(commands)), make([]error, len(commands))
	for i, c := range commands {
		s.sent = append(s.sent, c[0])
		switch c[0] {
		case "EVAL":
			replies[i].Text = "a r"
		case "WAIT":
			errs[i] = s.wait
		case "WAITAOF":
			replies[i] = driver.Reply{Kind: driver.Array, Array: s.answer}
		}
	}
	return replies, errs
}

// With Fsync a vote counts when it is on the node's own disk, and on those of enough replicas.
func TestFsyncOfNodeAndReplicas(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		local, replicas int64
		counts          bool
	}{{1, 2, true}, {1, 3, true}, {0, 2, false}, {1, 1, false}, {0, 0, false}} {
		conn := &synced{answer: []driver.Reply{{Kind: driver.Int, Int: c.local}, {Kind: driver.Int, Int: c.replicas}}}
		history, err := newReplicas(Replicas{Conn: conn, Want: 2, Fsync: true, Limit: time.Second}, "barrier", "1").ask(t.Context())
		failure, failed := errors.AsType[*ReplicasError](err)
		if history != "a r" || c.counts == failed || failed && (failure.Local != (c.local > 0) || failure.Acknowledged != int(c.replicas)) {
			t.Errorf("%+v: %q, %v", c, history, err)
		}
	}
	if _, err := newReplicas(Replicas{Conn: new(synced), Fsync: true}, "barrier", "1").ask(t.Context()); err == nil {
		t.Error("an answer without numbers counts")
	}
}

// Replicas are asked whether a vote is on their disks when they have it, also by a user who may not ask them for that.
func TestFsyncIsAskedForWhenReplicasHaveTheVote(t *testing.T) {
	t.Parallel()
	for want, sent := range map[int]string{0: "EVAL WAITAOF", 2: "EVAL WAIT WAITAOF"} {
		for _, err := range []error{nil, errors.New("NOPERM")} {
			conn := &synced{answer: []driver.Reply{{Kind: driver.Int, Int: 1}, {Kind: driver.Int, Int: 2}}, wait: err}
			_, failure := newReplicas(Replicas{Conn: conn, Want: want, Fsync: true, Limit: time.Second}, "barrier", "1").ask(t.Context())
			if got := strings.Join(conn.sent, " "); got != sent || failure != nil {
				t.Errorf("%d replicas: sent %s, want %s: %v", want, got, sent, failure)
			}
			// Where too few have it on disk, the missing right is told.
			conn.answer[1].Int = 1
			_, failure = newReplicas(Replicas{Conn: conn, Want: want, Fsync: true, Limit: time.Second}, "barrier", "1").ask(t.Context())
			if told := errors.Is(failure, cmp.Or(err, failure)); want > 0 && (failure == nil || !told) {
				t.Errorf("the WAIT got %v, and too few replicas have it on disk: %v", err, failure)
			}
		}
	}
}

// A server that refuses WAIT is looked at anew, which says so, and not one that is as able to vote as before.
func TestServerThatRefusesToWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			refusal string
			fsync   bool // and too few replicas have it on disk
			trusted bool
		}{
			{"NOPERM no", false, false}, {"ERR WAIT cannot be used with replica instances.", false, false},
			{"NOREPLICAS Not enough", false, true}, {"NOPERM no", true, true},
		} {
			conn := &synced{answer: []driver.Reply{{Kind: driver.Int, Int: 1}, {Kind: driver.Int}}, wait: &driver.ServerError{Text: c.refusal}}
			n := New(nil, Options{slotTag: "7", Replicas: Replicas{Conn: conn, Want: 1, Fsync: c.fsync, Limit: time.Second}})
			n.link.connected.Store(1)
			err := n.acknowledged(t.Context(), &sighting{history: "a r"})
			if trusted := n.link.connected.Load() == 1; trusted != c.trusted || !isReply(err) {
				t.Errorf("%+v: %v, and is trusted: %t", c, err, trusted)
			}
			n.end()
			n.background.Wait()
		}
	})
}

// What is said of a vote that does not count is one line, and says what to do where waiting does not help.
func TestTextOfTooFewReplicas(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]*ReplicasError{
		"1 of 2 replicas acknowledged it within 50ms":                                                                        {Acknowledged: 1, Wanted: 2},
		"0 of 1 replicas acknowledged it within 50ms as on disk: they need appendonly yes and appendfsync always, too":       {Wanted: 1, Fsync: true, Local: true},
		"2 of 2 replicas acknowledged it within 50ms as on disk, and the node itself did not: set its appendfsync to always": {Acknowledged: 3, Wanted: 2, Fsync: true},
		"the node did not acknowledge it within 50ms as on disk: set its appendfsync to always":                              {Fsync: true},
		"no acknowledgement: broken": {Wanted: 1, Err: errors.New("broken")},
		"no acknowledgement: the server with run_id a voted, and that with run_id b was asked for its replicas: " +
			"if this goes on, one is a former master, to which a connection still leads: make it a replica, or end it": {Wanted: 1, Err: &historyError{voted: "a r", asked: "b r"}},
		"no acknowledgement: the server was a replica for a while since it voted, or its first replica came": {Wanted: 1, Err: &historyError{voted: "a r", asked: "a s"}},
	} {
		e.Limit = 50 * time.Millisecond
		if got := e.Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// Neither command has the timeout 0, with which the server would wait for ever, where a node is only asked whether it
// knows the command.
func TestProbeDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	for fsync, want := range map[bool]string{false: "WAIT 0 1", true: "WAITAOF 1 0 1"} {
		if got := strings.Join(Replicas{Fsync: fsync}.command(0, 0), " "); got != want {
			t.Errorf("Fsync: %t: %s, want %s", fsync, got, want)
		}
	}
}
