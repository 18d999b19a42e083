package restart

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redisconn"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/oneshot"
)

// reset has the nodes record the client's settings.
func reset(t *testing.T, client *redlatch.Client, nodes ...string) {
	t.Helper()
	for _, node := range nodes {
		if err := client.Reset(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
}

// A deployment moves from five nodes to three of them.
func TestResetMovesADeployment(t *testing.T) {
	t.Parallel()
	servers := redistest.Nodes(t, 5)
	five := locktest.WithQuarantine(redistest.URLs(servers)...)
	three := five
	three.Nodes = five.Nodes[:3]

	old := locktest.Open(t, five)
	locktest.Vouch(t, old, five.Nodes...)
	held := locktest.TryLock(t, old, "x", redlatch.WithoutRenewal())
	client := locktest.Open(t, three)
	if _, err := locktest.TryInTime(t, client, "x"); !errors.Is(err, redlatch.ErrRefused) {
		t.Fatalf("before the reset: got %v, want ErrRefused", err)
	}
	if err := client.Admit(t.Context(), three.Nodes[0]); err == nil {
		t.Fatal("a node of another set was admitted")
	}

	var since time.Time
	for deadline := time.Now().Add(locktest.Patience); ; {
		since = time.Now()
		reset(t, client, three.Nodes...)
		lock, err := locktest.TryInTime(t, client, "x")
		reports := locktest.Examine(t, three)
		if time.Since(since) > locktest.RestartQuarantine-time.Second && time.Now().Before(deadline) {
			if err == nil {
				locktest.Unlock(t, lock)
			}
			continue // a busy machine, and the quarantine may be over
		}
		// Locks of the old set may be held still.
		if !errors.Is(err, redlatch.ErrNotAdmitted) {
			t.Fatalf("after the reset: got %v, want ErrNotAdmitted", err)
		}
		for _, node := range reports {
			if node.Status != doctor.StatusWaiting || node.Left <= 0 || node.Left > locktest.RestartQuarantine+time.Second {
				t.Errorf("%v for %v because of %v", node.Status, node.Left, node.Reason)
			}
		}
		break
	}
	// The old set is refused at once and for good, though its clients were not
	// stopped, and what it held runs out before the new set votes.
	refused := func(client *redlatch.Client) {
		t.Helper()
		_, err := locktest.TryInTime(t, client, "y")
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
	refused(locktest.Open(t, five))
	awaitVote(t, client, "x")
	if held.Err() == nil {
		t.Error("the new set gave away what the old one held")
	}
	// The server counts whole seconds, so up to one is lost.
	if waited := time.Since(since); waited < locktest.RestartQuarantine-time.Second {
		t.Errorf("it voted after %v, want about %v", waited, locktest.RestartQuarantine)
	}
	refused(old)
}

// A client of the old set that was not stopped goes on by the old nodes that are not new ones, where these are a majority of the old
// set. The page says so.
func TestClientOfTheOldSetIsNotStopped(t *testing.T) {
	t.Parallel()
	nodes := redistest.Nodes(t, 5)
	five := locktest.WithMaxTTL(locktest.WithQuarantine(redistest.URLs(nodes)...), locktest.TTL)
	before, after := five, five
	before.Nodes = five.Nodes[:3]
	after.Nodes = []string{five.Nodes[0], five.Nodes[3], five.Nodes[4]}
	old, next := locktest.Open(t, before), locktest.Open(t, after)
	locktest.Vouch(t, old, before.Nodes...)
	held := locktest.TryLock(t, old, "x", redlatch.WithoutRenewal())
	locktest.AwaitOn(t, held, nodes[:3]...)
	reset(t, next, after.Nodes...)
	locktest.Vouch(t, next, after.Nodes...) // which is not true
	locktest.Extend(t, held, locktest.TTL)
	locktest.TryLock(t, old, "y")
	for _, name := range []string{"x", "y"} {
		if _, err := locktest.TryInTime(t, next, name); err == nil && !strings.Contains(restartsPage(t), "goes on locking") {
			t.Errorf("a second holder of %q, and the page does not say that it is possible", name)
		}
	}
}

// Who knows that no lock is held need not wait.
func TestVouchAfterReset(t *testing.T) {
	t.Parallel()
	servers := redistest.Nodes(t, 3)
	three := locktest.WithQuarantine(redistest.URLs(servers)...)
	locktest.Vouch(t, locktest.Open(t, three), three.Nodes...)
	one := three
	one.Nodes = three.Nodes[:1]
	client := locktest.Open(t, one)
	if err := client.Reset(t.Context(), one.Nodes[0]); err != nil {
		t.Fatal(err)
	}
	locktest.Vouch(t, client, one.Nodes[0])
	locktest.TryLock(t, client, "x")
}

// MaxTTL can be made smaller by a reset only. The wait is for the former one.
func TestResetToASmallerMaxTTL(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	small := locktest.WithQuarantine(server.URL())
	large := small
	large.MaxTTL = time.Minute
	locktest.Vouch(t, locktest.Open(t, large), large.Nodes...)

	client := locktest.Open(t, small)
	if _, err := locktest.TryInTime(t, client, "x"); !errors.Is(err, redlatch.ErrRefused) {
		t.Fatalf("got %v, want ErrRefused", err)
	}
	if err := client.Reset(t.Context(), small.Nodes[0]); err != nil {
		t.Fatal(err)
	}
	_, err := locktest.AwaitAnswer(t, client, "x")
	if !errors.Is(err, redlatch.ErrNotAdmitted) {
		t.Fatalf("got %v, want ErrNotAdmitted", err)
	}
	// By the node's clock in whole seconds, and less what this machine took.
	if left := locktest.VerdictOf(t, err, 0).Left; left < large.MaxTTL-locktest.Patience || left > large.MaxTTL+5*time.Second {
		t.Errorf("%v left, want the former MaxTTL and 4s", left)
	}
}

// A node that forgets a change of the deployment is told by the others for how long locks of before the change may be held.
func TestAChangeIsForgotten(t *testing.T) {
	t.Parallel()
	servers := redistest.Nodes(t, 3)
	small := locktest.WithQuarantine(redistest.URLs(servers)...)
	large := small
	large.MaxTTL = time.Minute
	locktest.Vouch(t, locktest.Open(t, large), large.Nodes...)
	client := locktest.Open(t, small)
	waits := func(what string, i int, atLeast, atMost time.Duration) {
		t.Helper()
		// By a new client: one that has just asked says for a moment what it was told.
		if _, err := locktest.AwaitAnswer(t, locktest.Open(t, small), "x"); !errors.Is(err, redlatch.ErrNotAdmitted) {
			t.Fatalf("%s: got %v, want ErrNotAdmitted", what, err)
		}
		if node := locktest.Examine(t, small)[i]; node.Status != doctor.StatusWaiting || node.Left < atLeast || node.Left > atMost {
			t.Errorf("%s: %v, for %v because of %v, want %v to %v", what, node.Status, node.Left, node.Reason, atLeast, atMost)
		}
	}
	former := large.MaxTTL + 4*time.Second
	reset(t, client, small.Nodes...)
	locktest.Do(t, servers[1], "FLUSHALL")
	waits("flushed", 1, former-locktest.Patience, former+time.Second)
	if err := servers[2].RestartEmpty(t.Context()); err != nil {
		t.Fatal(err)
	}
	waits("restarted", 2, former-locktest.Patience, former+time.Second)
	// What is left of the quarantine goes on where the settings are changed again, and the records tell of it still.
	left := func() time.Duration { return locktest.Examine(t, small)[0].Left }
	before := left()
	locktest.Await(t, "some of it is over", func() bool { return left() < before-2*time.Second })
	reset(t, client, small.Nodes...)
	if after := left(); after > before-time.Second {
		t.Errorf("%v left, and after another change %v", before, after)
	}
	locktest.Do(t, servers[0], "FLUSHALL")
	waits("flushed after another change", 0, former-locktest.Patience, former+time.Second)
	// A node that votes tells of no former settings any more.
	locktest.Vouch(t, client, small.Nodes...)
	for _, server := range servers {
		if record := fmt.Sprint(locktest.Do(t, server, "GET", "redlatch:{default}:deployment")); strings.Contains(record, "former") {
			t.Errorf("admitted, and its record is %s", record)
		}
	}
}

// A lock of before a change is held on two nodes. One of these forgets it, and the change, and could make a majority with the
// node that was changed earlier, and votes.
func TestAChangeIsForgottenWhileALockIsHeld(t *testing.T) {
	t.Parallel()
	servers := redistest.Nodes(t, 3)
	small := locktest.WithQuarantine(redistest.URLs(servers)...)
	large := small
	large.MaxTTL = time.Minute
	old, client := locktest.Open(t, large), locktest.Open(t, small)
	locktest.Vouch(t, old, large.Nodes...)
	reset(t, client, small.Nodes[0])
	locktest.Vouch(t, client, small.Nodes[0])
	held := locktest.TryLock(t, old, "x", redlatch.WithTTL(large.MaxTTL), redlatch.WithoutRenewal())
	locktest.AwaitOn(t, held, servers[1:]...)
	reset(t, client, small.Nodes[1:]...)
	locktest.Do(t, servers[1], "FLUSHALL")
	for over := time.Now().Add(locktest.RestartQuarantine + 2*time.Second); time.Now().Before(over); time.Sleep(200 * time.Millisecond) {
		if _, err := client.TryLock(t.Context(), "x"); err == nil && held.Err() == nil {
			t.Fatal("a second holder")
		}
	}
	if node := locktest.Examine(t, small)[1]; node.Status != doctor.StatusWaiting {
		t.Errorf("the node that forgot: %v", node.Status)
	}
}

// amid is a connection on which something happens between the look at a node and what is done on the
// strength of it.
type amid struct {
	*redisconn.Conn
	acts   func(args []string) bool
	happen func()
}

func (c amid) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	if c.acts(args) {
		c.happen()
	}
	return c.Conn.Do(ctx, args...)
}

// openAmid opens a client of one node on whose connection something happens before acts.
func openAmid(t *testing.T, c redlatch.Config, acts func(args []string) bool, happen func()) *redlatch.Client {
	t.Helper()
	return locktest.OpenIn(t, c, hook.Surroundings{Dial: func(string) (driver.Conn, error) {
		options, _, err := redisconn.Parse(c.Nodes[0])
		if err != nil {
			return nil, err
		}
		options.ConnectTimeout = locktest.Patience
		conn, err := redisconn.New(options)
		return amid{conn, acts, happen}, err
	}})
}

// lockAfterReset has the client's settings c recorded by the node and a lock held under them for MaxTTL.
func lockAfterReset(t *testing.T, client *redlatch.Client, c redlatch.Config) *redlatch.Lock {
	t.Helper()
	if err := client.Reset(t.Context(), c.Nodes[0]); err != nil {
		t.Error(err)
	}
	locktest.Vouch(t, client, c.Nodes[0])
	return locktest.TryLock(t, client, "x", redlatch.WithTTL(c.MaxTTL), redlatch.WithoutRenewal())
}

// lostByAFlush has the lock "x" held on a server whose keys are then deleted, and whose quarantine has begun.
func lostByAFlush(t *testing.T, server *redistest.Server, c redlatch.Config) (held *redlatch.Lock) {
	t.Helper()
	client := locktest.Open(t, c)
	locktest.Vouch(t, client, "n0")
	held = locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())
	locktest.Do(t, server, "FLUSHALL")
	if _, err := locktest.AwaitAnswer(t, client, "y"); !errors.Is(err, redlatch.ErrNotAdmitted) {
		t.Fatalf("after the flush: got %v, want ErrNotAdmitted", err)
	}
	return held
}

// waitsFor tests that by err, that of a vote, the node is not admitted before the end of held.
func waitsFor(t *testing.T, err error, held *redlatch.Lock) {
	t.Helper()
	if !errors.Is(err, redlatch.ErrNotAdmitted) {
		t.Fatalf("got %v, want ErrNotAdmitted", err)
	}
	left := locktest.VerdictOf(t, err, 0).Left
	if until := time.Until(held.Until()); left < until {
		t.Errorf("the node votes in %v, and a lock is held for another %v", left, until)
	}
}

// Two operators change MaxTTL at the same time. The wait is for the larger one, of which there are
// locks by the time that the smaller one is recorded.
func TestResetAmidAnother(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	small := locktest.WithQuarantine(server.URL())
	large := small
	large.MaxTTL = time.Minute
	locktest.Vouch(t, locktest.Open(t, small), small.Nodes...)

	other := locktest.Open(t, large)
	var held *redlatch.Lock
	change := sync.OnceFunc(func() {
		held = lockAfterReset(t, other, large)
	})
	resets := func(args []string) bool { return len(args) > 1 && args[1] == script.Quarantine.Text }
	client := openAmid(t, small, resets, change)
	if err := client.Reset(t.Context(), small.Nodes[0]); err != nil {
		t.Fatal(err)
	}
	_, err := locktest.TryInTime(t, client, "y")
	waitsFor(t, err, held)
}

// A server has lost a lock of a large MaxTTL, and waits for its end. It restarts in the meantime, and an operator sets a
// smaller MaxTTL again. It waits for as long as before.
func TestResetAfterARestart(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{Args: onDisk})
	small := locktest.WithQuarantine(server.URL())
	large := small
	large.MaxTTL = time.Minute
	client, operator := locktest.Open(t, large), locktest.Open(t, small)
	locktest.Vouch(t, client, large.Nodes...)
	held := locktest.TryLock(t, client, "x", redlatch.WithTTL(large.MaxTTL), redlatch.WithoutRenewal())
	resetAndWait := func() {
		t.Helper()
		reset(t, operator, small.Nodes[0])
		_, err := locktest.TryInTime(t, operator, "y")
		waitsFor(t, err, held)
	}
	locktest.Do(t, server, "FLUSHALL")
	if _, err := locktest.TryInTime(t, client, "y"); !errors.Is(err, redlatch.ErrNotAdmitted) {
		t.Fatalf("got %v, want ErrNotAdmitted", err)
	}
	resetAndWait()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	resetAndWait()
}

// The quarantine of a change begins anew when the server restarts, though it has its record still.
func TestQuarantineOfAChangeBeginsAnew(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary, Args: onDisk})
		small := locktest.WithQuarantine(server.URL())
		large := locktest.WithMaxTTL(small, time.Minute)
		client := locktest.Open(t, large)
		locktest.Vouch(t, locktest.Open(t, small), "n0")
		if err := client.Reset(t.Context(), "n0"); err != nil {
			t.Fatal(err)
		}
		const quarantine = time.Minute + 4*time.Second
		left := func(client *redlatch.Client) time.Duration {
			t.Helper()
			_, err := locktest.AwaitAnswer(t, client, "x")
			if !errors.Is(err, redlatch.ErrNotAdmitted) {
				t.Fatalf("got %v, want ErrNotAdmitted", err)
			}
			return locktest.VerdictOf(t, err, 0).Left
		}
		locktest.Await(t, "some of it is over", func() bool { return left(client) < quarantine-2*time.Second })
		locktest.KillAndRestart(t, server)
		// The first client may say for another moment what it found before.
		if left, up := left(locktest.Open(t, large)), uptime(t, server); left+up < quarantine {
			t.Errorf("%v after its start it votes in %v, want %v together", up, left, quarantine)
		}
	})
}

// Between the look at a node whose quarantine is over and its admission, operators change MaxTTL to a
// larger one and back. The node waits for the locks that were given away meanwhile.
func TestAdmissionAmidResets(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	small := locktest.WithQuarantine(server.URL())
	large := small
	large.MaxTTL = time.Minute
	operator, other := locktest.Open(t, small), locktest.Open(t, large)
	setSmall := func() {
		if err := operator.Reset(t.Context(), small.Nodes[0]); err != nil {
			t.Error(err)
		}
	}
	setSmall()

	var held *redlatch.Lock
	change := sync.OnceFunc(func() {
		held = lockAfterReset(t, other, large)
		setSmall()
	})
	client := openAmid(t, small, admits, change)
	var err error
	locktest.Await(t, "the quarantine is over", func() bool {
		_, err = client.TryLock(t.Context(), "y")
		return held != nil
	})
	if !errors.Is(err, redlatch.ErrNotAdmitted) {
		t.Fatalf("got %v, want ErrNotAdmitted", err)
	}
	_, err = locktest.TryInTime(t, client, "y")
	waitsFor(t, err, held)
}

func TestResetRefuses(t *testing.T) {
	t.Parallel()
	servers := redistest.Nodes(t, 2)
	replica := redistest.NewReplica(t, servers[0])
	down := redistest.NewProxy(t, servers[1].Addr())
	if err := down.Refuse(true); err != nil {
		t.Fatal(err)
	}
	c := locktest.WithQuarantine(servers[1].URL(), replica.URL(), down.URL())
	client := locktest.Open(t, c)
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

// A client that votes without scripts, which would read the admission, and is connected all the time goes by what it
// read of the deployment when it connected, but not for long: the quarantine of the change must be longer.
func TestResetEndsVotesWithoutScripts(t *testing.T) {
	t.Parallel()
	for name, commands := range map[string]oneshot.Commands{"native": oneshot.CommandsNative, "watch": oneshot.CommandsWatch} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.New(t)
			config := locktest.Config(s.URL())
			config.NoQuarantine = true
			former, err := oneshot.NewWith(locktest.Open(t, config), oneshot.Config{Commands: commands})
			if err != nil {
				t.Fatal(err)
			}
			if err := locktest.InTime(func() error { return errorOf(former.Take(t.Context(), "x", "id", config.TTL)) }); err != nil {
				t.Fatalf("before the change: %v", err)
			}
			config.NoQuarantine, config.TTL, config.MaxTTL = false, locktest.RestartTTL, locktest.RestartTTL
			if err := locktest.Open(t, config).Reset(t.Context(), "n0"); err != nil {
				t.Fatal(err)
			}
			locktest.Await(t, "the former settings are refused", func() bool {
				_, err := former.Take(t.Context(), "y", "id", 10*time.Millisecond)
				return errors.Is(err, redlatch.ErrInvalid)
			})
			if name == "native" {
				return // extending would take a server with SET IFEQ
			}
			err = locktest.InTime(func() error { return errorOf(former.Extend(t.Context(), "x", "id", time.Minute)) })
			if !errors.Is(err, redlatch.ErrInvalid) {
				t.Errorf("extending: %v, want ErrInvalid", err)
			}
		})
	}
}
