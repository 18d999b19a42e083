package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// sender is a batcher that notes its commands, each of which takes as long as reply takes to return.
type sender struct {
	*batcher
	mu   sync.Mutex
	sent []string // the commands: keys and args
}

func newSender(reply func(command int) (answers string, err error)) *sender {
	s := new(sender)
	s.batcher = newBatcher(func(keys, args []string) (string, error) {
		s.mu.Lock()
		i := len(s.sent)
		s.sent = append(s.sent, strings.Join(keys, " ")+" | "+strings.Join(args, " "))
		s.mu.Unlock()
		return reply(i)
	}, []string{"admission"}, []string{"step", "ttl"})
	return s
}

// commands are those sent until now.
func (s *sender) commands() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// step has a step of kind k sent for name.
func (s *sender) step(k kind, name string) (bool, error) {
	return s.join(k, []string{name}, []string{"id-" + name})
}

// Steps that come while two commands are under way go in one: those that acquire first,
// and each has its own answer.
func TestStepsGoTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSender(func(i int) (string, error) {
			time.Sleep(heldBack / 2)
			return []string{"1", "1", "1010"}[i], nil
		})
		var group sync.WaitGroup
		defer group.Wait()
		executed := func(k kind, name string, want bool) {
			group.Go(func() {
				if got, err := s.step(k, name); got != want || err != nil {
					t.Errorf("%s: %t, %v", name, got, err)
				}
			})
			synctest.Wait()
		}
		executed(acquiring, "first", true)
		executed(releasing, "second", true)
		executed(releasing, "a", true)
		executed(acquiring, "b", true)
		executed(releasing, "c", false)
		executed(acquiring, "d", false)
		if sent := s.commands(); len(sent) != 2 {
			t.Fatalf("sent while two are under way: %q", sent)
		}
		time.Sleep(heldBack / 2)
		synctest.Wait()
		want := []string{
			"admission first | step ttl 1 id-first",
			"admission second | step ttl 0 id-second",
			"admission b d a c | step ttl 2 id-b id-d id-a id-c",
		}
		if sent := s.commands(); !slices.Equal(sent, want) {
			t.Errorf("sent %q", sent)
		}
	})
}

// A node that is far away is not waited for, and a command that is full leaves at once.
func TestStepsAreNotHeldBackForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const far = 50 * heldBack
		s := newSender(func(int) (string, error) {
			time.Sleep(far)
			return strings.Repeat("1", maxBatch), nil
		})
		var group sync.WaitGroup
		step := func(i int) {
			group.Go(func() {
				if done, err := s.step(kind(i%2), fmt.Sprint(i)); !done || err != nil {
					t.Errorf("step %d: %t, %v", i, done, err)
				}
			})
		}
		start := time.Now()
		sent := func(want int, when time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := s.commands(); len(got) != want || time.Since(start) != when {
				t.Fatalf("%d commands after %v", len(got), time.Since(start))
			}
		}
		for i := range maxBatches + 1 {
			step(i)
			synctest.Wait()
		}
		sent(maxBatches, 0)
		time.Sleep(heldBack)
		sent(maxBatches+1, heldBack)
		for i := range maxBatch {
			step(i)
		}
		sent(maxBatches+2, heldBack)
		group.Wait()
		if took := time.Since(start); took != far+heldBack {
			t.Errorf("it took %v", took)
		}
	})
}

// What the server refused was not done, and says nothing of the single step; what got no
// answer fails for all.
func TestStepsFailTogether(t *testing.T) {
	t.Parallel()
	refusal := &driver.ServerError{Text: "NOPERM another's key"}
	s := newSender(func(i int) (string, error) { return "", []error{refusal, errNoAnswer}[i] })
	if done, err := s.step(releasing, "refused"); done || err != nil {
		t.Errorf("refused: %t, %v", done, err)
	}
	if done, err := s.step(releasing, "lost"); done || err != errNoAnswer {
		t.Errorf("without an answer: %t, %v", done, err)
	}
}

// batches is a connection that counts batches, of one step each.
type batches struct {
	scripted
	n int
}

func (c *batches) EvalSHA(_ context.Context, _ string, _, args []string) (driver.Reply, error) {
	if args[0] != script.Batch {
		return deleted, nil
	}
	c.n++
	return driver.Reply{Kind: driver.Text, Text: "1"}, nil
}

// A batch has room for the key, the holder id, the TTL and the counter. A step that says more is sent by itself.
func TestWhatGoesTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := new(batches)
		n := voter(t, conn, -1)
		ticket := vote.Ticket{Waiter: "me", Number: 5}
		for i, r := range []vote.Acquire{
			{}, {From: "theirs"}, {More: 1}, {Reused: true}, {Barge: true}, {With: &vote.Keys{"y"}}, {Shared: true}, {Ticket: ticket},
		} {
			r.Key, r.ID, r.TTL, r.Proposed = "x", "mine", time.Second, 7
			conn.n = 0
			if n.Acquire(t.Context(), r); (conn.n == 1) != (i == 0) {
				t.Errorf("acquired by %d batches: %+v", conn.n, r)
			}
		}
		for i, r := range []vote.Release{
			{Key: "x"}, {Key: SlotKey(PermitsKey("x"), 1)}, {Key: "x", Token: 7}, {Key: "x", With: &vote.Keys{"y"}}, {Key: "x", Shared: true},
			{Key: "x", Ticket: ticket}, {Key: "x", Waiting: true},
		} {
			r.ID, conn.n = "mine", 0
			if n.Release(t.Context(), r); (conn.n == 1) != (i == 0) {
				t.Errorf("released by %d batches: %+v", conn.n, r)
			}
		}
	})
}
