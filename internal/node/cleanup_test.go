package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

func cleanUpOf(i int, ttl time.Duration) cleanUp {
	return cleanUp{request: vote.Release{Key: fmt.Sprint(i), ID: fmt.Sprint("id", i)}, gone: time.Now().Add(ttl)}
}

// Oldest first, put back at the head, over when empty.
func TestCleanUps(t *testing.T) {
	t.Parallel()
	var s cleanUps
	if !s.add(cleanUpOf(0, time.Hour)) {
		t.Error("the first starts no worker")
	}
	if s.add(cleanUpOf(1, time.Hour)) {
		t.Error("a second worker is started")
	}
	l, ok := s.next()
	if !ok || l.request.Key != "0" {
		t.Fatalf("%+v, %t", l, ok)
	}
	s.back(l)
	for _, want := range []string{"0", "1"} {
		if l, ok := s.next(); !ok || l.request.Key != want {
			t.Fatalf("%+v, %t; want %s", l, ok, want)
		}
	}
	// While the worker has the last one in hand it is not over.
	if s.add(cleanUpOf(2, time.Hour)) {
		t.Error("a second worker is started")
	}
	if l, ok := s.next(); !ok || l.request.Key != "2" {
		t.Fatalf("%+v, %t", l, ok)
	}
	if _, ok := s.next(); ok {
		t.Fatal("there is one more")
	}
	if !s.add(cleanUpOf(3, time.Hour)) {
		t.Error("no worker is started after the last one ended")
	}
}

// What several tries wanted removed is kept once. The slot of a permit, and the queue by which it was asked for, are
// two keys.
func TestCleanUpsAreKeptOnce(t *testing.T) {
	t.Parallel()
	var s cleanUps
	for _, key := range []string{"slot", "queue", "slot", "queue"} {
		s.add(cleanUp{request: vote.Release{Key: key, ID: "mine"}, gone: time.Now().Add(time.Hour)})
	}
	for _, want := range []string{"slot", "queue"} {
		if l, ok := s.next(); !ok || l.request.Key != want {
			t.Fatalf("%+v, %t; want %s", l, ok, want)
		}
	}
	if l, ok := s.next(); ok {
		t.Fatalf("%+v is left", l)
	}
}

// What the server has refused is not tried again, but where it could not do it for now, or has refused the connection.
func TestWhatIsFinal(t *testing.T) {
	t.Parallel()
	refusal := func(text string) error { return &driver.ServerError{Text: text} }
	for what, c := range map[string]struct {
		err   error
		final bool
	}{
		"done":           {nil, true},
		"refused":        {refusal("ERR no"), true},
		"loading":        {refusal("LOADING no"), false},
		"logged out":     {refusal("NOAUTH Authentication required."), false},
		"the connection": {driver.NotSent(refusal("ERR no")), false},
		"broken":         {errors.New("broken"), false},
	} {
		if isFinal(c.err) != c.final {
			t.Errorf("%s: final: %t", what, !c.final)
		}
	}
}

// What its TTL has removed is not tried any more.
func TestCleanUpsExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s cleanUps
		s.add(cleanUpOf(0, time.Second))
		s.add(cleanUpOf(1, 3*time.Second))
		s.add(cleanUpOf(2, time.Second))
		time.Sleep(2 * time.Second)
		if l, ok := s.next(); !ok || l.request.Key != "1" {
			t.Fatalf("%+v, %t", l, ok)
		}
		if l, ok := s.next(); ok {
			t.Fatalf("%+v is left", l)
		}
	})
}

// Beyond the bound the oldest is left to its TTL.
func TestCleanUpsAreBounded(t *testing.T) {
	t.Parallel()
	var s cleanUps
	for i := range maxCleanUps + 10 {
		s.add(cleanUpOf(i, time.Hour))
	}
	for i := range maxCleanUps {
		if l, ok := s.next(); !ok || l.request.Key != fmt.Sprint(i+10) {
			t.Fatalf("at %d: %+v, %t", i, l, ok)
		}
	}
	if l, ok := s.next(); ok {
		t.Fatalf("%+v is left", l)
	}
}

// The bound also holds while the worker has the oldest in hand, which is put back where the node is down.
func TestCleanUpsAreBoundedWhileOneIsInHand(t *testing.T) {
	t.Parallel()
	var s cleanUps
	for i := range maxCleanUps {
		s.add(cleanUpOf(i, time.Hour))
	}
	for i := range 10 {
		l, ok := s.next()
		if !ok || l.request.Key != fmt.Sprint(i) {
			t.Fatalf("at %d: %+v, %t", i, l, ok)
		}
		s.add(cleanUpOf(maxCleanUps+i, time.Hour))
		s.back(l)
		if len(s.list) > maxCleanUps {
			t.Fatalf("%d are kept", len(s.list))
		}
	}
}

// scripted is a connection to a server that admits everybody and answers
// releases as told.
type scripted struct {
	mu       sync.Mutex // guards what follows
	released []string   // ids, in order
	answer   func(id string) (driver.Reply, error)
}

func (c *scripted) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	switch {
	case args[0] == "EVAL" && args[1] == script.Inspect.Text:
		text := func(s string) driver.Reply { return driver.Reply{Kind: driver.Text, Text: s} }
		return driver.Reply{Kind: driver.Array, Array: []driver.Reply{text("run_id:" + strings.Repeat("r", 40) + "\r\nmaster_replid:" + strings.Repeat("i", 40) + "\r\nrole:master\r\nredis_version:7.0.0\r\n"), text(""), text(""), text(""), text("1")}}, nil
	case args[0] == "EVAL" && args[1] == script.Voting("").Text:
		return driver.Reply{Kind: driver.Int, Int: 1}, nil
	}
	return driver.Reply{Kind: driver.Text, Text: "PONG"}, nil
}

func (c *scripted) EvalSHA(ctx context.Context, sha string, keys, args []string) (driver.Reply, error) {
	if sha != script.Releasing.SHA {
		return driver.Reply{Kind: driver.Int, Int: 1}, nil
	}
	c.mu.Lock()
	c.released = append(c.released, args[0])
	c.mu.Unlock()
	return c.answer(args[0])
}

func (c *scripted) Connections() uint64 { return 1 }
func (c *scripted) Close()              {}

// tries returns how often the release of id was sent.
func (c *scripted) tries(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, released := range c.released {
		if released == id {
			n++
		}
	}
	return n
}

func unfenced(conn driver.Conn) *Node {
	return New(conn, Options{
		Name: "n", Census: NewCensus([]string{"n"}), Agreement: admission.Agreement{Deployment: "d", Nodes: []string{"n"}, MaxTTL: 30 * time.Second},
		ConnectTimeout: time.Second, Patience: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
}

var deleted = driver.Reply{Kind: driver.Int, Int: 1}

// A release without an answer is tried again, at a pace that slows down, until
// the node gives one.
func TestReleaseIsTriedUntilAnswered(t *testing.T) {
	t.Parallel()
	unanswered := map[string]error{
		"lost":      errors.New("connection reset"),
		"not sent":  driver.NotSent(errors.New("refused")),
		"loading":   &driver.ServerError{Text: "LOADING Redis is loading the dataset in memory"},
		"in script": &driver.ServerError{Text: "BUSY Redis is busy running a script"},
		"demoted":   &driver.ServerError{Text: "READONLY You can't write against a read only replica."},
		"no TLS":    tls.RecordHeaderError{Msg: "this is no TLS"},
		"no login":  driver.NotSent(&driver.ServerError{Text: "WRONGPASS invalid username-password pair or user is disabled."}),
		"no dial":   driver.NotSent(&tls.CertificateVerificationError{Err: errors.New("expired")}),
	}
	verdicts := map[string]vote.Verdict{
		"lost": vote.Unknown, "not sent": vote.NotSent, "loading": vote.Unavailable, "in script": vote.Unavailable,
		"demoted": vote.Unavailable, "no TLS": vote.Unknown, "no dial": vote.Refused, "no login": vote.Refused,
	}
	for name, failure := range unanswered {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				back := time.Now().Add(5 * time.Second)
				conn := &scripted{answer: func(string) (driver.Reply, error) {
					if time.Now().Before(back) {
						return driver.Reply{}, failure
					}
					return deleted, nil
				}}
				n := unfenced(conn)
				defer n.Close()
				a := n.Release(t.Context(), vote.Release{Key: "x", ID: "mine", TTL: 30 * time.Second})
				if want := verdicts[name]; a.Verdict != want {
					t.Errorf("answered %v", a.Verdict)
				}
				time.Sleep(4900 * time.Millisecond)
				synctest.Wait()
				before := conn.tries("mine")
				if before < 3 || before > 50 {
					t.Errorf("tried %d times in 5 s", before)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				after := conn.tries("mine")
				if after == before {
					t.Error("not tried again when the node was back")
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := conn.tries("mine"); n != after {
					t.Errorf("tried %d times more after it was answered", n-after)
				}
			})
		})
	}
}

// words is a connection that loses the first release, and notes what each says.
type words struct {
	scripted
	mu   sync.Mutex // guards said
	said [][]string
}

func (c *words) EvalSHA(_ context.Context, _ string, _, args []string) (driver.Reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.said = append(c.said, slices.Clone(args)); len(c.said) == 1 {
		return driver.Reply{}, errors.New("connection reset")
	}
	return deleted, nil
}

// A release that is tried again deletes the key, and no more: by then the waiter may be elsewhere, and what was left to
// the one that was woken up is gone.
func TestReleaseIsTriedAgainForTheKeyAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, r := range []vote.Release{
			{Key: "x", ID: "mine", TTL: time.Minute, Token: 7, Transfer: true},
			{Key: "x", ID: "mine", TTL: time.Minute, Token: 7, Ticket: vote.Ticket{Waiter: "me", Number: 5}},
		} {
			conn := new(words)
			n := unfenced(conn)
			n.Release(t.Context(), r)
			time.Sleep(time.Second)
			n.Close()
			if len(conn.said) != 2 || conn.said[0][1] != "7" || !slices.Equal(conn.said[1], []string{"mine", "0", n.counterTTL}) {
				t.Errorf("%+v: %q", r, conn.said)
			}
		}
	})
}

// A refusal is an answer: it is not tried again.
func TestRefusedReleaseIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := &scripted{answer: func(string) (driver.Reply, error) {
			return driver.Reply{}, &driver.ServerError{Text: "NOPERM no"}
		}}
		n := unfenced(conn)
		defer n.Close()
		if a := n.Release(t.Context(), vote.Release{Key: "x", ID: "mine", TTL: 30 * time.Second}); a.Verdict != vote.Refused {
			t.Errorf("answered %v", a.Verdict)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := conn.tries("mine"); n != 1 {
			t.Errorf("tried %d times", n)
		}
	})
}

// Trying ends with the TTL, and with Close.
func TestReleaseIsNotTriedForEver(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprintf("closed=%t", closed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				conn := &scripted{answer: func(string) (driver.Reply, error) { return driver.Reply{}, errors.New("reset") }}
				n := unfenced(conn)
				for i := range 3 {
					n.Release(t.Context(), vote.Release{Key: "x", ID: fmt.Sprint(i), TTL: 3 * time.Second})
				}
				time.Sleep(time.Second)
				if closed {
					n.Close()
				} else {
					defer n.Close()
					time.Sleep(2*time.Second + driver.LongestUnanswered)
				}
				synctest.Wait()
				before := conn.tries("0")
				time.Sleep(time.Minute)
				synctest.Wait()
				if after := conn.tries("0"); after != before || before < 2 {
					t.Errorf("tried %d times, then %d more", before, after-before)
				}
			})
		})
	}
}

// A node that is back is rid of everything at once, the oldest first, not at
// the pace of one that is down.
func TestCleanUpsAreWorkedOffAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := true
		var mu sync.Mutex
		conn := &scripted{answer: func(string) (driver.Reply, error) {
			mu.Lock()
			defer mu.Unlock()
			if down {
				return driver.Reply{}, errors.New("reset")
			}
			return deleted, nil
		}}
		n := unfenced(conn)
		defer n.Close()
		for i := range 100 {
			n.Release(t.Context(), vote.Release{Key: "x", ID: fmt.Sprint(i), TTL: 30 * time.Second})
		}
		time.Sleep(11 * time.Second) // pauses that went on doubling would be of 10 s by now
		synctest.Wait()
		mu.Lock()
		down = false
		mu.Unlock()
		conn.mu.Lock()
		conn.released = nil
		conn.mu.Unlock()
		start := time.Now()
		time.Sleep(1100 * time.Millisecond) // the longest pause and a little
		synctest.Wait()
		conn.mu.Lock()
		defer conn.mu.Unlock()
		if len(conn.released) != 100 {
			t.Errorf("%d of 100 were released %v after the node was back", len(conn.released), time.Since(start))
		}
		var want []string
		for i := range 100 {
			want = append(want, fmt.Sprint(i))
		}
		if !slices.Equal(conn.released, want) {
			t.Errorf("in the order %v", conn.released)
		}
	})
}

// A node that was back is tried again soon where it does not answer once more.
func TestCleanUpsBeginAnewAfterAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(10 * time.Second)
		var lost atomic.Bool
		answered := make(chan time.Time, 2)
		conn := &scripted{answer: func(id string) (driver.Reply, error) {
			if time.Now().Before(back) || id == "last" && !lost.Swap(true) {
				return driver.Reply{}, errors.New("reset")
			}
			answered <- time.Now()
			return deleted, nil
		}}
		n := unfenced(conn)
		defer n.Close()
		for _, id := range []string{"first", "last"} {
			n.cleanUps.add(cleanUp{request: vote.Release{Key: "x", ID: id}, gone: time.Now().Add(time.Minute)})
		}
		go n.workOff()
		if first, last := <-answered, <-answered; last.Sub(first) > 100*time.Millisecond {
			t.Errorf("the last is released %v after the first", last.Sub(first))
		}
	})
}

// A node that is held up for longer than the TTL may execute the acquire only then, and the release of a batch leaves a key
// for which others wait: it is still released.
func TestCleanUpsOutlastTheTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl = 3 * time.Second
		back := time.Now().Add(ttl + driver.LongestUnanswered - time.Second)
		var released atomic.Bool
		conn := &scripted{answer: func(string) (driver.Reply, error) {
			if time.Now().Before(back) {
				return driver.Reply{}, errors.New("no answer")
			}
			released.Store(true)
			return deleted, nil
		}}
		n := unfenced(conn)
		defer n.Close()
		n.Release(t.Context(), vote.Release{Key: "x", ID: "id", TTL: ttl})
		time.Sleep(time.Until(back) + 2*time.Second)
		if !released.Load() {
			t.Error("its key is left")
		}
	})
}

// Close does not leave until its TTL what a node that is back would delete at once, only because the next try was not
// due yet. Of a node that is still down it expects nothing.
func TestCloseTriesOnceMore(t *testing.T) {
	t.Parallel()
	for _, back := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var up atomic.Bool
			conn := &scripted{answer: func(string) (driver.Reply, error) {
				if up.Load() {
					return deleted, nil
				}
				return driver.Reply{}, errors.New("reset")
			}}
			n := unfenced(conn)
			const keys = 100
			for i := range keys {
				n.Release(t.Context(), vote.Release{Key: "x", ID: fmt.Sprint(i), TTL: 30 * time.Second})
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			up.Store(back)
			conn.mu.Lock()
			conn.released = nil
			conn.mu.Unlock()
			start := time.Now()
			n.Close()
			if took := time.Since(start); took > 0 {
				t.Errorf("Close took %v", took)
			}
			want := 1
			if back {
				want = keys
			}
			if len(conn.released) != want {
				t.Errorf("back is %t: %d of %d were tried once more, want %d", back, len(conn.released), keys, want)
			}
		})
	}
}
