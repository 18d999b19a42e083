package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/vote"
)

// slowReplicas is a connection to a server whose replicas acknowledge everything after a while. It counts the
// groups that were asked for, and how many of these were under way at once.
type slowReplicas struct {
	driver.Conn
	takes time.Duration

	mu                  sync.Mutex // guards what follows
	groups, under, most int
}

func (s *slowReplicas) Batch(ctx context.Context, _ ...[]string) ([]driver.Reply, []error) {
	s.mu.Lock()
	s.groups++
	s.under++
	s.most = max(s.most, s.under)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.under--
		s.mu.Unlock()
	}()
	select {
	case <-time.After(s.takes):
		return []driver.Reply{{Text: "a r"}, {Kind: driver.Int, Int: 1}}, make([]error, 2)
	case <-ctx.Done():
		return make([]driver.Reply, 2), []error{ctx.Err(), ctx.Err()}
	}
}

// acknowledge has so many votes wait for the replicas at the same time, and returns what they are told.
func (n *Node) acknowledge(t *testing.T, votes int) <-chan error {
	told := make(chan error, votes)
	for range votes {
		go func() { told <- n.acknowledged(t.Context(), &sighting{history: "a r"}) }()
	}
	return told
}

// newAcknowledged returns a node whose votes replicas acknowledge over conn, within a second as the server says it.
func newAcknowledged(t *testing.T, conn driver.Batcher) *Node {
	n := New(nil, Options{slotTag: "7", Replicas: Replicas{Conn: conn, Want: 1, Limit: time.Second}})
	t.Cleanup(func() {
		n.end()
		n.background.Wait()
	})
	return n
}

// The votes that came while others waited for replicas are acknowledged together, after those. The server may take
// as long as the replicas have, and a little longer.
func TestVotesAreAcknowledgedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := &slowReplicas{takes: 1100 * time.Millisecond}
		n := newAcknowledged(t, conn)
		for again := range 2 { // a group begins as well when none has been under way for a while
			first := n.acknowledge(t, 1)
			synctest.Wait()
			more := n.acknowledge(t, 100)
			for i := range 101 {
				told := more
				if i == 0 {
					told = first
				}
				select {
				case err := <-told:
					if err != nil {
						t.Fatal(err)
					}
				case <-time.After(time.Minute):
					t.Fatal("a vote is not acknowledged")
				}
			}
			if want := 2 * (again + 1); conn.groups != want || conn.most != 1 {
				t.Errorf("the replicas were asked %d times, want %d, and %d times at once", conn.groups, want, conn.most)
			}
			time.Sleep(time.Second)
		}
	})
}

// Where replicas are so slow that very many votes wait for them, a further one does not.
func TestFewVotesWaitForReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newAcknowledged(t, &slowReplicas{takes: time.Second})
		first := n.acknowledge(t, 1)
		synctest.Wait()
		waiting := n.acknowledge(t, maxInFlight)
		synctest.Wait()
		start := time.Now()
		few, _ := errors.AsType[*ReplicasError](<-n.acknowledge(t, 1))
		if took := time.Since(start); few == nil || few.Err == nil || took > 0 {
			t.Errorf("one more was told %v after %v", few, took)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
		for range maxInFlight {
			if err := <-waiting; err != nil {
				t.Fatal(err)
			}
		}
	})
}

// unasked is a connection for replicas that fails, and a server that is looked at when votes ask for them.
type unasked struct {
	renewed
	errs [2]error
	// breaks makes the connection of the node break meanwhile.
	breaks bool
	voted  atomic.Int64
}

func (u *unasked) Batch(context.Context, ...[]string) ([]driver.Reply, []error) {
	if u.breaks {
		u.number.Add(1)
	}
	return make([]driver.Reply, 2), u.errs[:]
}

func (u *unasked) EvalSHA(ctx context.Context, sha string, keys, args []string) (driver.Reply, error) {
	u.voted.Add(1)
	return u.renewed.EvalSHA(ctx, sha, keys, args)
}

// A vote is not asked for where the replicas could not be asked for an acknowledgement, or where the connection broke
// before that was known.
func TestReplicasAreProbedBeforeAVote(t *testing.T) {
	t.Parallel()
	broken, no := errors.New("broken"), &driver.ServerError{Text: "ERR unknown command 'WAIT'"}
	loading := &driver.ServerError{Text: "LOADING Redis is loading the dataset in memory"}
	for name, c := range map[string]struct {
		conn *unasked
		want vote.Verdict
	}{
		"no connection": {&unasked{errs: [2]error{broken, broken}}, vote.NotSent},
		"no answer":     {&unasked{errs: [2]error{nil, broken}}, vote.NotSent},
		"not now":       {&unasked{errs: [2]error{loading, loading}}, vote.Unavailable},
		"no WAIT":       {&unasked{errs: [2]error{nil, no}}, vote.Refused},
		"it breaks":     {&unasked{breaks: true}, vote.NotSent},
	} {
		synctest.Test(t, func(t *testing.T) {
			c.conn.answer, c.conn.reply = released, deleted
			n := New(c.conn, Options{
				Name: "n", Census: NewCensus([]string{"n"}), Agreement: admission.Agreement{Deployment: "d", Nodes: []string{"n"}, MaxTTL: time.Second, NoQuarantine: true},
				ConnectTimeout: time.Second, Patience: time.Second, Logger: slog.New(slog.DiscardHandler),
				Replicas: Replicas{Conn: c.conn, Want: 1, Limit: time.Second},
			})
			a := n.Extend(t.Context(), vote.Extend{Key: "x", ID: "mine", TTL: time.Second})
			if a.Verdict != c.want || c.conn.voted.Load() > 0 {
				t.Errorf("%s: %v, %v, voted %d times", name, a.Verdict, a.Err, c.conn.voted.Load())
			}
			n.end()
			n.background.Wait()
		})
	}
}

// Where the replicas could not be asked, the vote says so, and the server is not thought to be another.
func TestReplicasThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		for _, errs := range [][2]error{{nil, broken}, {broken, broken}, {broken, nil}} {
			n := newAcknowledged(t, &unasked{errs: errs})
			n.link.connected.Store(1)
			err := <-n.acknowledge(t, 1)
			if err == nil || err.Error() != "no acknowledgement: broken" || n.link.connected.Load() != 1 {
				t.Errorf("%q; the connection that is trusted is %d", err, n.link.connected.Load())
			}
		}
	})
}

// A vote whose time ends while it waits for the replicas does not say that it was the server that did not answer.
func TestTimeIsOverWhileReplicasAreWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newAcknowledged(t, &slowReplicas{takes: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		err := n.acknowledged(ctx, &sighting{history: "a r"})
		if failure, ok := errors.AsType[*ReplicasError](err); !ok || failure.Error() != "no acknowledgement: the time for it was over" {
			t.Errorf("got %v", err)
		}
	})
}
