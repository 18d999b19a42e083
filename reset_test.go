package redlatch_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A deployment moves from five nodes to three of them.
func TestResetMovesADeployment(t *testing.T) {
	t.Parallel()
	servers := redistest.Nodes(t, 5)
	five := withQuarantine(redistest.URLs(servers)...)
	three := five
	three.Nodes = five.Nodes[:3]

	old := open(t, five)
	vouch(t, old, five.Nodes...)
	held := tryLock(t, old, "x", redlatch.WithoutRenewal())
	client := open(t, three)
	if _, err := tryInTime(t, client, "x"); !errors.Is(err, redlatch.ErrRefused) {
		t.Fatalf("before the reset: got %v, want ErrRefused", err)
	}
	if err := client.Admit(t.Context(), three.Nodes[0]); err == nil {
		t.Fatal("a node of another set was admitted")
	}

	since := time.Now()
	for _, node := range three.Nodes {
		if err := client.Reset(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	// Locks of the old set may be held still.
	if _, err := tryInTime(t, client, "x"); !errors.Is(err, redlatch.ErrNotAdmitted) {
		t.Fatalf("after the reset: got %v, want ErrNotAdmitted", err)
	}
	for _, node := range examine(t, three) {
		if node.Status != doctor.StatusWaiting || node.Left <= 0 || node.Left > restartQuarantine+time.Second {
			t.Errorf("%v for %v because of %v", node.Status, node.Left, node.Reason)
		}
	}
	// The old set is refused at once and for good, though its clients were not
	// stopped, and what it held runs out before the new set votes.
	refused := func(client *redlatch.Client) {
		t.Helper()
		_, err := client.TryLock(t.Context(), "y")
		if !errors.Is(err, redlatch.ErrRefused) {
			t.Fatalf("the old set: got %v, want ErrRefused", err)
		}
		for _, name := range []string{"[n0 n1 n2 n3 n4]", "[n0 n1 n2]"} {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%v does not name %s", err, name)
			}
		}
	}
	refused(old)
	refused(open(t, five))
	awaitVote(t, client, "x")
	if held.Err() == nil {
		t.Error("the new set gave away what the old one held")
	}
	// The server counts whole seconds, so up to one is lost.
	if waited := time.Since(since); waited < restartQuarantine-time.Second {
		t.Errorf("it voted after %v, want about %v", waited, restartQuarantine)
	}
	refused(old)
}

// Who knows that no lock is held need not wait.
func TestVouchAfterReset(t *testing.T) {
	t.Parallel()
	servers := redistest.Nodes(t, 3)
	three := withQuarantine(redistest.URLs(servers)...)
	vouch(t, open(t, three), three.Nodes...)
	one := three
	one.Nodes = three.Nodes[:1]
	client := open(t, one)
	if err := client.Reset(t.Context(), one.Nodes[0]); err != nil {
		t.Fatal(err)
	}
	vouch(t, client, one.Nodes[0])
	if _, err := client.TryLock(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
}

// MaxTTL can be made smaller by a reset only. The wait is for the former one.
func TestResetToASmallerMaxTTL(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	small := withQuarantine(server.URL())
	large := small
	large.MaxTTL = time.Minute
	vouch(t, open(t, large), large.Nodes...)

	client := open(t, small)
	if _, err := tryInTime(t, client, "x"); !errors.Is(err, redlatch.ErrRefused) {
		t.Fatalf("got %v, want ErrRefused", err)
	}
	if err := client.Reset(t.Context(), small.Nodes[0]); err != nil {
		t.Fatal(err)
	}
	_, err := client.TryLock(t.Context(), "x")
	if !errors.Is(err, redlatch.ErrNotAdmitted) {
		t.Fatalf("got %v, want ErrNotAdmitted", err)
	}
	// By the node's clock in whole seconds, and less what this machine took.
	if left := verdictOf(t, err, 0).Left; left < large.MaxTTL-patience || left > large.MaxTTL+5*time.Second {
		t.Errorf("%v left, want the former MaxTTL and 4s", left)
	}
}

func TestResetRefuses(t *testing.T) {
	t.Parallel()
	servers := redistest.Nodes(t, 2)
	replica := redistest.NewReplica(t, servers[0])
	down := redistest.NewProxy(t, servers[1].Addr())
	if err := down.Refuse(true); err != nil {
		t.Fatal(err)
	}
	c := withQuarantine(servers[1].URL(), replica.URL(), down.URL())
	client := open(t, c)
	if err := client.Reset(t.Context(), "redis://127.0.0.1:1"); !errors.Is(err, redlatch.ErrInvalid) {
		t.Errorf("a foreign node: got %v, want ErrInvalid", err)
	}
	for node, why := range map[string]string{"n1": "name its master", "n2": "refused"} {
		if err := client.Reset(t.Context(), node); err == nil || !strings.Contains(err.Error(), "reset "+node) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: got %v, want %q", node, err, why)
		}
	}
	if keys, err := servers[0].Do("KEYS", "*"); err != nil || !slices.Equal(keys.([]any), nil) {
		t.Errorf("there are keys: %v, %v", keys, err)
	}
}
