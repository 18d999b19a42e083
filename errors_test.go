package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
	"github.com/redlatch/redlatch/redlatchtest"
)

// Whatever nodes answer, an operation fails with an error that its documentation names.
func TestOnlyDocumentedErrors(t *testing.T) {
	documented := map[string][]error{
		"lock":    {redlatch.ErrHeld, redlatch.ErrNoQuorum, redlatch.ErrNotAdmitted, redlatch.ErrRefused},
		"extend":  {redlatch.ErrNoQuorum, redlatch.ErrNotAdmitted, redlatch.ErrRefused},
		"unlock":  {redlatch.ErrNoQuorum, redlatch.ErrRefused},
		"take":    {redlatch.ErrHeld, redlatch.ErrNoQuorum, redlatch.ErrNotAdmitted, redlatch.ErrRefused}, // ErrHeld is no error of Take
		"release": {redlatch.ErrNoQuorum, redlatch.ErrNotAdmitted, redlatch.ErrRefused},
		"query":   {redlatch.ErrNoQuorum, redlatch.ErrNotAdmitted, redlatch.ErrRefused},
	}
	var votes []redlatch.NodeAnswer
	for v := redlatch.VoteUnknown; fmt.Sprint(v) != fmt.Sprintf("Verdict(%d)", v); v++ {
		votes = append(votes, redlatch.NodeAnswer{Verdict: v})
	}
	votes = append(votes, redlatch.NodeAnswer{Verdict: redlatch.VoteUnknown, Err: errors.New("no answer")})
	for op, kinds := range documented {
		seen := make(map[error]bool)
		for _, n := range []int{1, 3, 5} {
			nodes := make([]redlatch.NodeAnswer, n)
			count := 1
			for range n {
				count *= len(votes)
			}
			for k := range count {
				for i := range nodes {
					nodes[i] = votes[k%len(votes)]
					k /= len(votes)
				}
				kind := redlatch.KindOf(op, nodes)
				if !slices.Contains(kinds, kind) {
					t.Fatalf("%s: %v amounts to %v", op, nodes, kind)
				}
				seen[kind] = true
			}
		}
		if len(seen) != len(kinds) {
			t.Errorf("%s: only %v came out", op, seen)
		}
	}
}

// The error of a vote that failed although a quorum said yes says how that can be.
func TestErrorOfAQuorumThatCameTooLate(t *testing.T) {
	t.Parallel()
	e := &redlatch.QuorumError{Op: "lock", Need: 2, Of: 3, Nodes: []redlatch.NodeAnswer{
		{Node: "a", Verdict: redlatch.VoteGranted}, {Node: "b", Verdict: redlatch.VoteGranted}, {Node: "c"},
	}}
	if !strings.Contains(e.Error(), "2 of 3 nodes said yes, 2 needed, but too late") {
		t.Error(e)
	}
	if e.Nodes[1].Verdict = redlatch.VoteNotSent; strings.Contains(e.Error(), "late") {
		t.Error(e)
	}
}

// Nodes that gave the same answer are told of together: it may be a long one. That the vote was decided
// without a node's answer does not read as if that node were dead.
func TestErrorOfNodesThatAgree(t *testing.T) {
	t.Parallel()
	other := errors.New("other settings")
	e := &redlatch.QuorumError{Op: "lock", Name: "x", Need: 3, Of: 5, Nodes: []redlatch.NodeAnswer{
		{Node: "a", Verdict: redlatch.VoteRefused, Err: other}, {Node: "b", Verdict: redlatch.VoteGranted}, {Node: "c"},
		{Node: "d", Verdict: redlatch.VoteRefused, Err: other}, {Node: "e", Verdict: redlatch.VoteRefused, Err: errors.New("no rights")},
	}}
	want := "; a, d: " + redlatch.VoteRefused.String() + ": other settings; c: not waited for; e: " + redlatch.VoteRefused.String() + ": no rights"
	if !strings.HasSuffix(e.Error(), want) {
		t.Errorf("%v\nwant at its end: %s", e, want)
	}
}

// The error of a call that is for no name has none.
func TestErrorWithoutAName(t *testing.T) {
	t.Parallel()
	e := &redlatch.QuorumError{Op: "list", Need: 2, Of: 3, Nodes: []redlatch.NodeAnswer{{Node: "a"}, {Node: "b"}, {Node: "c"}}}
	if text := e.Error(); !strings.HasPrefix(text, "list: ") {
		t.Error(text)
	}
}

// The error of a lock that nobody by name keeps from the caller names nobody.
func TestErrorWithoutAHolder(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	client := locktest.Open(t, locktest.Config(server.URL()))
	locktest.Do(t, server, "SET", "job", "")
	_, err := client.TryLock(t.Context(), "job")
	if !errors.Is(err, redlatch.ErrHeld) || !strings.HasSuffix(err.Error(), ": a client that waits, or a key without a value") {
		t.Errorf("it says %v", err)
	}
	if text := (redlatch.NodeAnswer{Node: "a", Verdict: redlatch.VoteHeld, Left: time.Second}).String(); !strings.Contains(text, "(a client that waits, or a key without a value, 1s left)") {
		t.Error(text)
	}
}

// The error of a server that refuses the connection says that it is refused, and not that nothing was sent.
func TestErrorOfARefusedConnection(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	client, err := redlatch.Open(redlatch.Config{Nodes: []string{strings.Replace(server.URL(), "://", "://nobody:wrong@", 1)}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	locktest.Await(t, "it says why", func() bool { // as below
		_, err := client.TryLock(t.Context(), "job")
		return strings.Contains(err.Error(), ": refused: WRONGPASS ")
	})
}

// The error of a lock on a server that cannot be reached says once that nothing was sent.
func TestErrorOfAServerThatIsAway(t *testing.T) {
	t.Parallel()
	client, err := redlatch.Open(redlatch.Config{Nodes: []string{"redis://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	locktest.Await(t, "it says why", func() bool { // on a busy machine a try may end while its connection is still being made
		_, err := client.TryLock(t.Context(), "job")
		if !errors.Is(err, redlatch.ErrNoQuorum) || strings.Count(err.Error(), "not sent") != 1 {
			t.Fatalf("it says %v", err)
		}
		return strings.Contains(err.Error(), "; 127.0.0.1:1: not sent: dial tcp ")
	})
}

// Holder says for how long the lock is kept at least, as List does, whatever the order of the nodes.
func TestHolderIsKeptForAtLeast(t *testing.T) {
	t.Parallel()
	const forever = -time.Millisecond
	for _, tt := range []struct {
		lefts []time.Duration
		want  time.Duration
	}{
		{[]time.Duration{time.Second}, time.Second},
		{[]time.Duration{2 * time.Second, 9 * time.Second}, 2 * time.Second},
		{[]time.Duration{9 * time.Second, 2 * time.Second}, 2 * time.Second},
		{[]time.Duration{2 * time.Second, 2 * time.Second, 9 * time.Second}, 2 * time.Second},
		{[]time.Duration{2 * time.Second, 8 * time.Second, 9 * time.Second}, 8 * time.Second}, // two keep it for so long
		{[]time.Duration{2 * time.Second, forever}, 2 * time.Second},
		{[]time.Duration{forever, 2 * time.Second, forever}, forever},
	} {
		e := &redlatch.QuorumError{Op: "lock", Need: 2, Of: 3}
		for _, left := range tt.lefts {
			e.Nodes = append(e.Nodes, redlatch.NodeAnswer{Verdict: redlatch.VoteHeld, Holder: redlatch.Holder{ID: "a"}, Left: left})
		}
		e.Nodes = append(e.Nodes, redlatch.NodeAnswer{Verdict: redlatch.VoteNotSent})
		if h, left, ok := e.Holder(); !ok || h.ID != "a" || left != tt.want && (left >= 0 || tt.want >= 0) {
			t.Errorf("%v: %v, %v, %t, want %v", tt.lefts, h, left, ok, tt.want)
		}
	}
	if _, _, ok := (&redlatch.QuorumError{Nodes: []redlatch.NodeAnswer{{}}}).Holder(); ok {
		t.Error("a holder that no node has named")
	}
}

// What is left of a lock is told in milliseconds, also where this process counts it itself.
func TestErrorTellsMilliseconds(t *testing.T) {
	t.Parallel()
	a := redlatch.NodeAnswer{Node: "a", Verdict: redlatch.VoteHeld, Holder: redlatch.Holder{ID: "b"}, Left: 1234567891}
	if text := a.String(); !strings.Contains(text, ", 1.235s left") {
		t.Error(text)
	}
	server := redistest.New(t)
	client := locktest.Open(t, locktest.Config(server.URL()))
	locktest.TryLock(t, client, "job")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := client.Lock(ctx, "job", redlatch.WithWaitReport(func(error) { cancel() }))
	if err == nil || !regexp.MustCompile(`, expires in [0-9ms]+(\.[0-9]{1,3})?s$`).MatchString(err.Error()) {
		t.Errorf("it says %v", err)
	}
}

// The errors of callers that wait when the client is closed, of calls on a client that is closed, and of a lock that was
// released, name the lock.
func TestErrorsNameTheLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{})
		names := func(what string, err, want error) {
			t.Helper()
			if !errors.Is(err, want) || !strings.Contains(err.Error(), `"job"`) {
				t.Errorf("%s: %v", what, err)
			}
		}
		lock, err := client.Lock(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		waits := make(chan error, 2)
		for range cap(waits) {
			go func() {
				_, err := client.Lock(context.Background(), "job")
				waits <- err
			}()
			synctest.Wait()
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		for range cap(waits) {
			names("waiting", <-waits, redlatch.ErrClosed)
		}
		for what, call := range map[string]func() error{
			"Lock": func() error { _, err := client.Lock(t.Context(), "job"); return err },
			"Do":   func() error { return client.Do(t.Context(), "job", func(context.Context) error { return nil }) },
			"Observe": func() (err error) {
				for _, err = range client.Observe(t.Context(), "job") {
				}
				return err
			},
			"ObservePermits": func() (err error) {
				for _, err = range client.ObservePermits(t.Context(), "job") {
				}
				return err
			},
			"Waiters":         func() error { _, err := client.Waiters(t.Context(), "job"); return err },
			"Permits":         func() error { _, _, err := client.Permits(t.Context(), "job"); return err },
			"oneshot.Release": func() error { _, err := oneshot.New(client.Client).Release(t.Context(), "job", "id"); return err },
		} {
			names(what+" of a client that is closed", call(), redlatch.ErrClosed)
		}
		if err := client.Admit(t.Context(), "memory"); !errors.Is(err, redlatch.ErrClosed) || !strings.Contains(err.Error(), "admit: ") {
			t.Error(err)
		}
		names("released", lock.Err(), redlatch.ErrReleased)
		names("unlocked again", lock.Unlock(t.Context()), redlatch.ErrReleased)
	})
}

// A call for several names that would wait for its own caller names the one that its ctx carries.
func TestCarriedNameIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{})
		for _, held := range [][]string{{"b"}, {"a", "b"}} {
			lock, err := client.LockAll(t.Context(), held)
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.LockAll(lock.Context(), []string{"c", "b", "d"})
			if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), `lock "b": the ctx of this call carries it`) {
				t.Errorf("under %q: %v", held, err)
			}
			if err := lock.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// An extension that comes while Close waits for the work under a lead names the lock.
func TestExtensionDuringCloseNamesTheLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.New(t, redlatch.Config{})
		closed := make(chan error)
		_ = client.Campaign(t.Context(), "job", func(ctx context.Context) error {
			lock, ok := redlatch.Held(ctx, "job")
			if !ok {
				t.Fatal("ctx carries no lock")
			}
			go func() { closed <- client.Close() }()
			<-ctx.Done()
			if err := lock.Extend(t.Context(), 5*time.Second); !errors.Is(err, redlatch.ErrClosed) || !strings.Contains(err.Error(), `extend "job": `) {
				t.Errorf("it says %v", err)
			}
			return nil
		})
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}
