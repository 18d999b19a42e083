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
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// quarantineClient opens a client whose nodes are vouched for unless quarantine is off.
func quarantineClient(t *testing.T, urls []string, quarantine bool, admit bool) *redlatch.Client {
	t.Helper()
	return locktest.QuarantineClientOf(t, locktest.RestartTTL, urls, quarantine, admit)
}

// awaitVote tries until the single node votes, and returns how long that took.
func awaitVote(t *testing.T, client *redlatch.Client, name string) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), locktest.RestartQuarantine+locktest.Patience)
	defer cancel()
	start := time.Now()
	lock, err := client.Lock(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(ctx); err != nil && !locktest.Late(err) && !errors.Is(err, redlatch.ErrLost) { // its TTL is short
		t.Fatal(err)
	}
	return time.Since(start)
}

// A lock is held through three of five nodes, and one of the three restarts
// empty: without the quarantine the two others and the forgetful one are a quorum.
func TestRestartedNodeDoesNotVoteForALockItForgot(t *testing.T) {
	const ttl = 4 * time.Second // for which a restart takes less
	for _, quarantine := range []bool{true, false} {
		t.Run(fmt.Sprintf("quarantine=%t", quarantine), func(t *testing.T) {
			t.Parallel()
			servers := redistest.Nodes(t, 5)
			// A cannot reach nodes 3 and 4, which it knows by other addresses.
			var direct, through []string
			for i, server := range servers {
				url := server.URL()
				direct = append(direct, fmt.Sprintf("%s#n%d", url, i))
				if i >= 3 {
					proxy := redistest.NewProxy(t, server.Addr())
					if err := proxy.Refuse(true); err != nil {
						t.Fatal(err)
					}
					url = proxy.URL()
				}
				through = append(through, fmt.Sprintf("%s#n%d", url, i))
			}
			b := locktest.QuarantineClientOf(t, ttl, direct, quarantine, true)
			a := locktest.QuarantineClientOf(t, ttl, through, quarantine, false)

			// Without the quarantine a busy machine may be too slow for two, but not each time.
			for round := 0; ; round++ {
				name := fmt.Sprint("x", round)
				held := locktest.TryLock(t, a, name)
				locktest.KillAndRestart(t, servers[0])

				// A goes on renewing through the two nodes it has left of its quorum
				// until it is lost; B tries all that time.
				violated := false
				for held.Err() == nil && !violated {
					if lock, err := b.TryLock(t.Context(), name); err == nil {
						violated = held.Err() == nil
						lock.Unlock(t.Context())
					}
				}
				if want := !quarantine; violated == want {
					return
				}
				if quarantine || round == 20 {
					t.Fatalf("two holders at once: %t", violated)
				}
			}
		})
	}
}

// untilTheQuarantine has something happen that ends a node's vote, and returns when, and what the client is told by a node that
// may be in quarantine. A busy machine may hear of it only when that is over: then it happens again.
func untilTheQuarantine(t *testing.T, client *redlatch.Client, happen func()) (since time.Time, err error) {
	t.Helper()
	for deadline := time.Now().Add(locktest.Patience); ; {
		since = time.Now()
		happen()
		err = locktest.TryUntilAnswered(t, client, "x")
		if err != nil || time.Since(since) < locktest.RestartQuarantine-2*time.Second || time.Now().After(deadline) {
			return since, err
		}
	}
}

// What a node comes back as, and whether it may vote.
func TestAdmission(t *testing.T) {
	always := []string{"--appendonly", "yes", "--appendfsync", "always"}
	cases := []struct {
		name   string
		args   []string
		happen func(t *testing.T, s *redistest.Server)
		// trusted: it votes at once. Otherwise reason is part of why it does not.
		trusted bool
		reason  string
	}{
		{name: "killed, no persistence", happen: locktest.KillAndRestart, reason: "started"},
		{name: "killed, snapshot", args: []string{"--save", "3600 1"}, happen: func(t *testing.T, s *redistest.Server) {
			locktest.Do(t, s, "SAVE")
			locktest.KillAndRestart(t, s)
		}, reason: "started"},
		{name: "killed, append-only file, everysec", args: []string{"--appendonly", "yes", "--appendfsync", "everysec"}, happen: locktest.KillAndRestart, reason: "started"},
		// Today's settings do not tell yesterday's: that is what Config.Durable is for.
		{name: "killed, append-only file, always", args: always, happen: locktest.KillAndRestart, reason: "started"},
		{name: "killed and emptied, append-only file, always", args: always, happen: func(t *testing.T, s *redistest.Server) {
			if err := s.RestartEmpty(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, reason: "started"},
		{name: "FLUSHALL", happen: func(t *testing.T, s *redistest.Server) { locktest.Do(t, s, "FLUSHALL") }, reason: "deleted"},
		{name: "FLUSHDB", happen: func(t *testing.T, s *redistest.Server) { locktest.Do(t, s, "FLUSHDB") }, reason: "deleted"},
		{name: "FLUSHALL and SCRIPT FLUSH", happen: func(t *testing.T, s *redistest.Server) {
			locktest.Do(t, s, "FLUSHALL")
			locktest.Do(t, s, "SCRIPT", "FLUSH")
		}, reason: "deleted"},
		{name: "SCRIPT FLUSH", happen: func(t *testing.T, s *redistest.Server) { locktest.Do(t, s, "SCRIPT", "FLUSH") }, trusted: true},
	}
	for _, binary := range redistest.Flavors() {
		for _, c := range cases {
			t.Run(binary+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				server := redistest.New(t, redistest.Options{Binary: binary, Args: c.args})
				client := quarantineClient(t, []string{server.URL()}, true, true)
				locktest.Unlock(t, locktest.TryLock(t, client, "x"))

				if c.trusted {
					const tries = 20 // a busy machine may take as long as the quarantine, but not each time
					for try := 1; ; try++ {
						c.happen(t, server)
						// The try that met the restart may stand in the next one's way for
						// a moment, until it is undone.
						if err := locktest.TryUntilAnswered(t, client, "x"); errors.Is(err, redlatch.ErrNotAdmitted) {
							t.Fatalf("not trusted: %v", err)
						}
						waited := awaitVote(t, client, "x")
						if waited <= locktest.RestartQuarantine-time.Second {
							return
						}
						if try == tries {
							t.Fatalf("it voted after %v only", waited)
						}
					}
				}
				since, err := untilTheQuarantine(t, client, func() { c.happen(t, server) })
				if !errors.Is(err, redlatch.ErrNotAdmitted) {
					t.Fatalf("got %v, want ErrNotAdmitted", err)
				}
				answer := locktest.VerdictOf(t, err, 0)
				if answer.Left <= 0 || answer.Left > locktest.RestartQuarantine || !strings.Contains(answer.Err.Error(), c.reason) {
					t.Errorf("got %v, with %v left; want the reason %q and at most %v", answer, answer.Left, c.reason, locktest.RestartQuarantine)
				}
				awaitVote(t, client, "x")
				// The server counts whole seconds, rounded in our favour by at most one.
				if waited := time.Since(since); waited < locktest.RestartQuarantine-2*time.Second {
					t.Errorf("it voted after %v, want about %v", waited, locktest.RestartQuarantine)
				}
			})
		}
	}
}

// The old master's last writes may be missing on the new one, and its uptime
// says nothing.
func TestPromotedReplicaIsNotAdmitted(t *testing.T) {
	t.Parallel()
	master := redistest.New(t)
	replica := redistest.NewReplica(t, master)
	proxy := redistest.NewProxy(t, master.Addr())
	client := quarantineClient(t, []string{proxy.URL()}, true, true)
	if err := locktest.TryUntilAnswered(t, client, "x"); err != nil {
		t.Fatal(err)
	}

	proxy.Retarget(replica.Addr())
	proxy.Cut()
	locktest.Await(t, "it says that it is a replica", func() bool {
		_, err := client.TryLock(t.Context(), "x")
		return errors.Is(err, redlatch.ErrNoQuorum) && strings.Contains(err.Error(), "the node is a replica")
	})
	master.Kill()
	locktest.Do(t, replica, "REPLICAOF", "NO", "ONE")
	err := locktest.TryUntilAnswered(t, client, "x")
	if !errors.Is(err, redlatch.ErrNotAdmitted) || !strings.Contains(err.Error(), "promoted") {
		t.Fatalf("got %v, want it not admitted because it was promoted", err)
	}
	awaitVote(t, client, "x")
}

// A proxy that keeps the client's connection open hides everything but the
// answers.
func TestRestartBehindAProxyIsSeen(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	proxy.KeepClientOpen(true)
	client := quarantineClient(t, []string{proxy.URL()}, true, true)
	if err := locktest.TryUntilAnswered(t, client, "x"); err != nil {
		t.Fatal(err)
	}
	accepted := proxy.Stats().Accepted
	if _, err := untilTheQuarantine(t, client, func() { locktest.KillAndRestart(t, server) }); !errors.Is(err, redlatch.ErrNotAdmitted) {
		t.Fatalf("got %v, want ErrNotAdmitted", err)
	}
	if now := proxy.Stats().Accepted; now != accepted {
		t.Fatalf("the client reconnected (%d connections, before %d): the restart was not hidden", now, accepted)
	}
}

// Two deployments on one server have their own admissions.
func TestDeploymentsAreAdmittedApart(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	open := func(deployment string, maxTTL time.Duration) *redlatch.Client {
		client, err := redlatch.Open(redlatch.Config{
			Nodes: []string{server.URL()}, Deployment: deployment, TTL: 20 * time.Second, MaxTTL: maxTTL, NodeTimeout: time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		return client
	}
	one, other := open("one", 20*time.Second), open("other", 20*time.Second)
	locktest.Vouch(t, one, server.URL())
	locktest.TryLock(t, one, "x")
	if _, err := locktest.TryInTime(t, other, "y"); !errors.Is(err, redlatch.ErrNotAdmitted) {
		t.Fatalf("got %v, want ErrNotAdmitted", err)
	}

	// Who comes with another MaxTTL is refused, and nobody else is.
	larger := open("one", 30*time.Second)
	if _, err := locktest.TryInTime(t, larger, "z"); !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "MaxTTL 20s") {
		t.Fatalf("got %v, want ErrInvalid that names the MaxTTL", err)
	}
	locktest.TryLock(t, one, "w")
}

// Quorums of different sets need not meet.
func TestAnotherNodeSetIsRefused(t *testing.T) {
	t.Parallel()
	servers := redistest.Nodes(t, 5)
	urls := redistest.URLs(servers)
	quarantineClient(t, urls, true, true)

	three := quarantineClient(t, urls[:3], true, false)
	_, err := locktest.TryInTime(t, three, "x")
	if !errors.Is(err, redlatch.ErrRefused) {
		t.Fatalf("got %v, want ErrRefused", err)
	}
	for _, server := range servers {
		if !strings.Contains(err.Error(), server.Addr()) {
			t.Errorf("%v does not name %s", err, server.Addr())
		}
	}

	// The same servers under other addresses are the same set by their recorded names.
	var proxied []string
	for i, proxy := range redistest.Proxies(t, servers) {
		proxied = append(proxied, proxy.URL()+"#"+servers[i].Addr())
	}
	same := quarantineClient(t, proxied, true, false)
	locktest.TryLock(t, same, "y")
}

// All keys are deleted after a client has looked at the node and before it admits it: the
// locks of before are held still, and the node does not vote.
func TestFlushedBeforeItIsAdmitted(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		s := redistest.New(t, redistest.Options{Binary: binary})
		proxy := redistest.NewProxy(t, s.Addr())
		c := locktest.Config(s.URL())
		c.NoQuarantine = false
		first := locktest.Open(t, c)
		locktest.Vouch(t, first, "n0")
		lock := locktest.TryLock(t, first, "x")
		locktest.Do(t, s, "SCRIPT", "FLUSH") // so that the next is to admit it
		var flushed sync.Once
		proxy.OnCommand(func(c redistest.Command) redistest.Action {
			if c.Name() == "EVAL" && slices.Contains(c.Args, "admit") {
				flushed.Do(func() { s.Do("FLUSHALL") })
			}
			return redistest.Pass
		})
		second := locktest.Open(t, locktest.Through(c, proxy.URL()))
		if got, err := locktest.TryInTime(t, second, "x"); !errors.Is(err, redlatch.ErrNotAdmitted) {
			t.Errorf("while %v is held: %v, %v", lock.Token(), got, err)
		}
		if locktest.Value(t, s, "x") != "" {
			t.Error("the keys were not deleted")
		}
	})
}

// A client that comes seldom, such as a cron job, finds the node in quarantine. When it comes again much later,
// the node votes, though no client came meanwhile.
func TestNobodyComesDuringTheQuarantine(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		s := redistest.New(t, redistest.Options{Binary: binary})
		client := locktest.Open(t, locktest.WithQuarantine(s.URL()))
		locktest.Vouch(t, client, "n0")
		locktest.Do(t, s, "FLUSHALL")
		if _, err := locktest.TryInTime(t, client, "x"); !errors.Is(err, redlatch.ErrNotAdmitted) {
			t.Fatalf("after FLUSHALL: %v", err)
		}
		<-time.After(3 * locktest.RestartQuarantine)
		locktest.TryLock(t, client, "x")
	})
}
