package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// What is reported of a node's right to vote is what a client then meets.
func TestExamineForetellsTheVote(t *testing.T) {
	cases := []struct {
		name string
		args []string
		// happen is done to a node that has been vouched for and has granted a
		// lock, when it is not nil.
		happen          func(t *testing.T, c redlatch.Config, s *redistest.Server)
		strict, durable bool
		want            doctor.Status
		reason          string
		verdict         redlatch.Verdict
	}{
		{name: "just started", want: doctor.StatusWaiting, reason: "started", verdict: redlatch.VoteNotAdmitted},
		{name: "vouched for", happen: func(*testing.T, redlatch.Config, *redistest.Server) {}, want: doctor.StatusAdmitted, verdict: redlatch.VoteGranted},
		{name: "scripts flushed", happen: func(t *testing.T, _ redlatch.Config, s *redistest.Server) { locktest.Do(t, s, "SCRIPT", "FLUSH") },
			want: doctor.StatusAdmissible, verdict: redlatch.VoteGranted},
		{name: "restarted empty", happen: func(t *testing.T, _ redlatch.Config, s *redistest.Server) { locktest.KillAndRestart(t, s) },
			want: doctor.StatusWaiting, reason: "started", verdict: redlatch.VoteNotAdmitted},
		{name: "restarted, word kept on disk", args: []string{"--appendonly", "yes", "--appendfsync", "always"}, durable: true,
			happen: func(t *testing.T, _ redlatch.Config, s *redistest.Server) { locktest.KillAndRestart(t, s) },
			want:   doctor.StatusAdmissible, verdict: redlatch.VoteGranted},
		{name: "all deleted", happen: func(t *testing.T, _ redlatch.Config, s *redistest.Server) { locktest.Do(t, s, "FLUSHALL") },
			want: doctor.StatusWaiting, reason: "its data was", verdict: redlatch.VoteNotAdmitted},
		{name: "keys deleted one by one, and nobody counted", happen: func(t *testing.T, c redlatch.Config, s *redistest.Server) {
			locktest.Do(t, s, "DEL", "redlatch:{"+c.Deployment+"}:admitted", "redlatch:{"+c.Deployment+"}:deployment")
		}, want: doctor.StatusWaiting, reason: "its data was", verdict: redlatch.VoteNotAdmitted},
		{name: "may evict", args: []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, strict: true,
			want: doctor.StatusUnfit, reason: "noeviction", verdict: redlatch.VoteRefused},
		{name: "a larger MaxTTL", happen: func(t *testing.T, c redlatch.Config, s *redistest.Server) {
			c.MaxTTL = time.Minute
			if err := locktest.Open(t, c).Reset(t.Context(), c.Nodes[0]); err != nil {
				t.Fatal(err)
			}
		}, want: doctor.StatusUnfit, reason: "MaxTTL", verdict: redlatch.VoteRefused},
		{name: "out of memory", happen: func(t *testing.T, _ redlatch.Config, s *redistest.Server) {
			locktest.Do(t, s, "CONFIG", "SET", "maxmemory", "1")
		},
			want: doctor.StatusAdmitted, reason: "OOM", verdict: redlatch.VoteUnavailable},
	}
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				server := redistest.New(t, redistest.Options{Binary: binary, Args: c.args})
				cfg := locktest.WithMaxTTL(locktest.WithQuarantine(server.URL()), locktest.Patience) // which nobody waits for
				cfg.Strict, cfg.Durable = c.strict, c.durable
				client := locktest.Open(t, cfg)
				if c.happen != nil {
					locktest.Vouch(t, client, cfg.Nodes...)
					if err := locktest.TryUntilAnswered(t, client, "x"); err != nil {
						t.Fatal(err)
					}
					c.happen(t, cfg, server)
				}

				node := locktest.Examine(t, cfg)[0]
				reason := node.Reason
				if reason == nil {
					reason = node.Refusal
				}
				if node.Err != nil || node.Status != c.want || !strings.Contains(fmt.Sprint(reason), c.reason) {
					t.Fatalf("got %v because of %v (%v), want %v because of %q", node.Status, reason, node.Err, c.want, c.reason)
				}
				if node.OtherSet != nil {
					t.Errorf("it is said to have other nodes recorded: %q", node.OtherSet)
				}
				switch r := node.Recorded; {
				case r == nil:
				case r.Agrees && (r.Status != node.Status || r.Durable != c.durable):
					t.Errorf("it is %v, and has recorded %+v", node.Status, r)
				case !r.Agrees && (r.Status != doctor.StatusWaiting || r.Left <= 0 || r.Reason == nil): // the reset began a quarantine
					t.Errorf("for those with its settings: %+v", r)
				}
				if left := node.Left; (left > 0) != (c.want == doctor.StatusWaiting) || left > cfg.MaxTTL+4*time.Second {
					t.Errorf("%v left", left)
				}

				// A client that was there before, and one that comes anew.
				for _, client := range []*redlatch.Client{client, locktest.Open(t, cfg)} {
					err := locktest.TryUntilAnswered(t, client, "x")
					if c.verdict == redlatch.VoteGranted {
						// The try that met a restart may stand in the next one's way for a
						// moment, until it is undone.
						if err != nil && !errors.Is(err, redlatch.ErrHeld) {
							t.Errorf("it does not vote: %v", err)
						}
						continue
					}
					if met := locktest.VerdictOf(t, err, 0); met.Verdict != c.verdict || !strings.Contains(fmt.Sprint(met.Err), c.reason) {
						t.Errorf("a client met %v, want %v because of %q", met, c.verdict, c.reason)
					}
				}
			})
		}
	})
}

func TestExamineTellsWhatTheServerIs(t *testing.T) {
	cases := []struct {
		args        []string
		persistence string
		durable     bool
		evicting    bool
	}{
		{nil, "none", false, false},
		{[]string{"--save", "3600 1"}, "RDB", false, false},
		{[]string{"--appendonly", "yes"}, "AOF everysec", false, false},
		{[]string{"--appendonly", "yes", "--appendfsync", "no", "--save", "3600 1"}, "AOF no and RDB", false, false},
		{[]string{"--appendonly", "yes", "--appendfsync", "always"}, "AOF always", true, false},
		{[]string{"--maxmemory", "50mb", "--maxmemory-policy", "volatile-ttl"}, "none", false, true},
		{[]string{"--maxmemory-policy", "volatile-ttl"}, "none", false, false},
	}
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, c := range cases {
			t.Run(strings.Join(c.args, " "), func(t *testing.T) {
				t.Parallel()
				server := redistest.New(t, redistest.Options{Binary: binary, Args: c.args})
				node := locktest.Examine(t, locktest.WithQuarantine(server.URL()))[0]
				want, _, _ := strings.Cut(binary[strings.LastIndexByte(binary, '/')+1:], "-")
				if node.Server != want || node.Version != server.Version() {
					t.Errorf("got %s %s, want %s %s", node.Server, node.Version, want, server.Version())
				}
				if node.Persistence != c.persistence || node.Durable != c.durable || node.Evicting != c.evicting {
					t.Errorf("got %+v, want %+v", node, c)
				}
				if node.Role != "master" || node.User != "default" || len(node.RunID) != 40 || node.Latency <= 0 || node.Refusal != nil || node.Missing != nil {
					t.Errorf("got %+v", node)
				}
			})
		}
	})
}

// The servers count every write that had an effect. A lock is held meanwhile,
// and its name is among those looked at.
func TestExamineChangesNothing(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary})
		c := locktest.WithQuarantine(server.URL())
		changes := func() string {
			t.Helper()
			info, err := server.Info("persistence")
			if err != nil {
				t.Fatal(err)
			}
			return info["rdb_changes_since_last_save"]
		}
		before := changes()
		locktest.Examine(t, c, "x") // it has never been used
		if after := changes(); after != before {
			t.Fatalf("on a new node, changes went from %s to %s", before, after)
		}

		client := locktest.Open(t, c)
		locktest.Vouch(t, client, c.Nodes...)
		if _, err := client.TryLock(t.Context(), "x", redlatch.WithoutRenewal()); err != nil {
			t.Fatal(err)
		}
		late := locktest.WatchLateness(t, server)
		for try := 1; ; try++ {
			late.Take()
			before = changes()
			if before == "0" {
				t.Fatal("a lock was taken and no change counted: the measure is wrong")
			}
			node := locktest.Examine(t, c, "x")[0]
			after := changes()
			if node.Status != doctor.StatusAdmitted {
				t.Fatalf("%+v", node)
			}
			if after == before {
				break
			}
			// Once, on a busy machine, something else was counted. An examination that wrote would each time.
			if by := late.Take(); by <= script.Grace/4 || try == 3 {
				t.Fatalf("changes went from %s to %s, where the machine was late by %v; %+v", before, after, by, node)
			}
		}
	})
}

// documented are the rights that doc.go lists for every user.
func documented(t *testing.T) (rules []string) {
	t.Helper()
	text, err := os.ReadFile("../doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^//\t([~+].*)$`).FindAllStringSubmatch(string(text), -1) {
		rules = append(rules, strings.Fields(line[1])...)
	}
	return rules
}

// What of the ACL is missing is found, and what is asked for is enough.
func TestExamineFindsMissingPermissions(t *testing.T) {
	t.Parallel()
	needed := append(slices.DeleteFunc(documented(t), func(rule string) bool { return rule == "+subscribe" }), "+wait")
	missing := func(rule string) []string {
		switch rule {
		case "~job/*":
			return []string{"~job/1"} // the name that was asked for
		case "+publish", "&redlatch:wake:*":
			return []string{"&redlatch:wake:*", "+publish", "+subscribe"} // one does not go without the others
		}
		return []string{rule}
	}
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		users := []string{"none on >p resetkeys -@all", "deaf on >p -@all " + strings.Join(needed, " "), "app on >p -@all +subscribe " + strings.Join(needed, " ")}
		for i := range needed {
			rest := slices.Delete(slices.Clone(needed), i, i+1)
			users = append(users, fmt.Sprintf("u%d on >p resetchannels -@all +subscribe %s", i, strings.Join(rest, " ")))
		}
		server := redistest.New(t, redistest.Options{Binary: binary, Users: users})
		as := func(user string) redlatch.Config { return locktest.WithQuarantine(server.URLAs(user, "p")) }
		// What clients have written is not called foreign by one who may not see the clock, or the keys.
		now, heartbeats, next := locktest.ServerTime(t, server).UnixMilli(), "redlatch:{job/1}:heartbeats:job/1", "redlatch:{job/1}:next:job/1"
		locktest.Do(t, server, "ZADD", heartbeats, fmt.Sprint(now+5000), "who")
		locktest.Do(t, server, "SET", next, fmt.Sprintf("who %d ", now+500))

		without := as(fmt.Sprint("u", slices.Index(needed, "+wait")))
		if node := locktest.Examine(t, without, "job/1")[0]; node.Missing != nil {
			t.Errorf("no replica is to acknowledge, and %q is missing", node.Missing)
		}
		without.Replicas.Count, without.NodeTimeout = 1, 500*time.Millisecond
		if node := locktest.Examine(t, without, "job/1")[0]; !slices.Equal(node.Missing, []string{"+wait"}) || node.Refusal != nil {
			t.Errorf("with Replicas %q is missing, refused %v", node.Missing, node.Refusal)
		}
		without.Replicas.Fsync = true
		if node := locktest.Examine(t, without, "job/1")[0]; !slices.Equal(node.Missing, []string{"+wait", "+waitaof"}) && node.Refusal == nil {
			t.Errorf("with Fsync %q is missing, refused %v", node.Missing, node.Refusal)
		}
		for i, rule := range needed {
			if rule == "+wait" {
				continue
			}
			node := locktest.Examine(t, as(fmt.Sprintf("u%d", i)), "job/1")[0]
			if node.Err != nil || node.User != fmt.Sprint("u", i) || !slices.Equal(node.Missing, missing(rule)) {
				t.Errorf("without %s: %s is missing %q (%v)", rule, node.User, node.Missing, node.Err)
			}
			if node.ForeignKeys != nil {
				t.Errorf("without %s: foreign %+v", rule, node.ForeignKeys)
			}
			// Admission depends on what these tell.
			blind := slices.Contains([]string{"~redlatch:*", "+info", "+time", "+get"}, rule)
			if refused := node.Status == doctor.StatusUnfit && strings.Contains(node.Reason.Error(), "NOPERM"); refused != blind {
				t.Errorf("without %s: %v because of %v", rule, node.Status, node.Reason)
			}
			if node.Unreadable != nil || (node.Server == "") != (rule == "+info") {
				t.Errorf("without %s: unreadable %v; the server is %q", rule, node.Unreadable, node.Server)
			}
		}
		if node := locktest.Examine(t, as("deaf"), "job/1")[0]; !slices.Equal(node.Missing, []string{"+subscribe"}) {
			t.Errorf("without +subscribe: %q", node.Missing)
		}
		node := locktest.Examine(t, as("none"), "job/1")[0]
		if slices.Contains(node.Missing, "~") {
			t.Errorf("without all: %q", node.Missing)
		}
		for _, rule := range needed {
			if rule != "+wait" && !slices.Contains(node.Missing, missing(rule)[0]) {
				t.Errorf("without all: %s is not among %q", rule, node.Missing)
			}
		}
		if node.Status != doctor.StatusUnfit || !strings.Contains(node.Reason.Error(), "info") || node.Persistence != "unknown" {
			t.Errorf("without all: %v because of %v, and what is kept is %s", node.Status, node.Reason, node.Persistence)
		}

		if node := locktest.Examine(t, locktest.WithQuarantine(server.URLAs(fmt.Sprint("u", slices.Index(needed, "+client|kill")), "p"), redistest.New(t).URL()), "job/1")[0]; node.Missing != nil {
			t.Errorf("of two nodes: %q is missing, and there is no second connection", node.Missing)
		}
		locktest.Do(t, server, "DEL", heartbeats, next)
		c := as("app")
		if node := locktest.Examine(t, c, "job/1")[0]; node.Missing != nil || node.Err != nil || node.Refusal != nil || node.Persistence != "unknown" {
			t.Fatalf("with all that is needed: %+v", node)
		}
		one, other := locktest.Open(t, c), locktest.Open(t, c)
		locktest.Vouch(t, one, c.Nodes...)
		lock, err := one.TryLock(t.Context(), "job/1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locktest.TryInTime(t, other, "job/1"); !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("got %v, want ErrHeld", err)
		}
		if err := lock.Extend(t.Context(), locktest.RestartTTL); err != nil {
			t.Error(err)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What Examine says of a server with Fsync is what a client then meets: it needs WAITAOF and an
// append-only file.
func TestExamineFindsWhatFsyncNeeds(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, kept := range []string{"no", "yes"} {
			server := redistest.New(t, redistest.Options{Binary: binary, Args: []string{"--appendonly", kept, "--appendfsync", "always"}})
			c := locktest.Config(server.URL())
			c.Replicas.Fsync, c.NodeTimeout = true, 400*time.Millisecond
			err := locktest.TryUntilAnswered(t, locktest.Open(t, c), "x")
			refused := errors.Is(err, redlatch.ErrRefused)
			if kept == "no" && !refused {
				t.Errorf("without an append-only file a client gets %v", err)
			}
			if node := locktest.Examine(t, c, "x")[0]; (node.Refusal != nil) != refused {
				t.Errorf("appendonly %s: refused %v, and a client gets %v", kept, node.Refusal, err)
			}
		}
	})
}

// The user is who the server says that it is, which may be another than the one in the URL.
func TestExamineTellsWhoTheUserIs(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary, Users: []string{"other on >secret ~* &* +@all"}})
		proxy := redistest.NewProxy(t, server.Addr())
		proxy.Translate(func(args []string) []string {
			i := slices.Index(args, "alias")
			if i < 0 {
				return args
			}
			return slices.Concat(args[:i], []string{"other"}, args[i+1:])
		})
		if node := locktest.Examine(t, locktest.WithQuarantine("redis://alias:secret@"+proxy.Addr()))[0]; node.Err != nil || node.User != "other" {
			t.Errorf("the user is %q, %v", node.User, node.Err)
		}
	})
}

// A look ends, whatever the nodes do, and tells one from another.
func TestExamineUnreachableNodes(t *testing.T) {
	t.Parallel()
	servers := redistest.Nodes(t, 3, redistest.Options{Password: "secret"})
	proxies := redistest.Proxies(t, servers)
	if err := proxies[0].Refuse(true); err != nil {
		t.Fatal(err)
	}
	if err := servers[1].Pause(); err != nil {
		t.Fatal(err)
	}
	c := locktest.WithQuarantine(proxies[0].URL(), servers[1].URL(), proxies[2].URL())
	reports := locktest.Examine(t, c)
	for i, word := range []string{"refused", "", "NOAUTH"} {
		if node := reports[i]; node.Err == nil || node.Status != doctor.StatusUnclear || !strings.Contains(node.Err.Error(), word) {
			t.Errorf("node %d: got %v because of %v, want an error with %q", i, node.Status, node.Err, word)
		}
		if node := reports[i]; node.SameAs != "" || node.User != "" || !errors.Is(node.Reason, node.Err) {
			t.Errorf("node %d: the same as %q, user %q, %v because of %v", i, node.SameAs, node.User, node.Status, node.Reason)
		}
	}

	// The connection ends amid the look, at whether the server has a script.
	proxies[2].OnCommand(func(c redistest.Command) redistest.Action {
		if c.Name() == "EVALSHA" && len(c.Args) == 4 {
			return redistest.CutAfter
		}
		return redistest.Pass
	})
	if node := locktest.Examine(t, locktest.WithQuarantine("redis://default:secret@"+proxies[2].Addr()))[0]; node.Err == nil || node.Status != doctor.StatusUnclear {
		t.Errorf("cut off: %v because of %v", node.Status, node.Err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	reports, err := doctor.Examine(ctx, c)
	if err != nil || len(reports) != 3 || reports[2].Err == nil {
		t.Errorf("with ctx done: got %v, %v", reports, err)
	}
}

func TestExamineRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for _, c := range []redlatch.Config{{}, {Nodes: []string{"http://127.0.0.1"}}} {
		if _, err := doctor.Examine(t.Context(), c); !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("%+v: got %v, want ErrInvalid", c, err)
		}
	}
	if _, err := doctor.Examine(t.Context(), locktest.Config("redis://127.0.0.1:1"), ""); !errors.Is(err, redlatch.ErrInvalid) {
		t.Errorf("an empty name: got %v, want ErrInvalid", err)
	}
}

// A replica, one server under two addresses, and the nodes of another set.
func TestExamineFindsMisnamedNodes(t *testing.T) {
	t.Parallel()
	servers := redistest.Nodes(t, 3)
	replica := redistest.NewReplica(t, servers[0])
	proxy := redistest.NewProxy(t, servers[1].Addr())

	reports := locktest.Examine(t, locktest.WithQuarantine(replica.URL(), servers[1].URL(), proxy.URL(), servers[2].URL()))
	if node := reports[0]; node.Role != "slave" || node.Status != doctor.StatusUnfit || node.Refusal != nil {
		t.Errorf("a replica: got %+v", node)
	}
	if node := reports[2]; node.SameAs != "n1" || node.Status != doctor.StatusUnfit {
		t.Errorf("a second address: got %+v", node)
	}
	if node := reports[1]; node.SameAs != "" || node.Status != doctor.StatusUnfit {
		t.Errorf("the first address: got %+v", node)
	}
	if node := reports[3]; node.SameAs != "" || node.Status == doctor.StatusUnfit {
		t.Errorf("another server: got %+v", node)
	}

	three := locktest.WithQuarantine(redistest.URLs(servers)...)
	locktest.Vouch(t, locktest.Open(t, three), three.Nodes...)
	two := three
	two.Nodes = three.Nodes[:2]
	for _, node := range locktest.Examine(t, two) {
		if !slices.Equal(node.OtherSet, []string{"n0", "n1", "n2"}) || node.Status != doctor.StatusUnfit {
			t.Errorf("another set: got %+v", node)
		}
	}

	// The same servers under other names are another set, also while one is away.
	away := redistest.NewProxy(t, servers[2].Addr())
	if err := away.Refuse(true); err != nil {
		t.Fatal(err)
	}
	renamed := three
	renamed.Nodes = []string{servers[0].URL() + "#a", servers[1].URL() + "#b", away.URL() + "#c"}
	for _, node := range locktest.Examine(t, renamed)[:2] {
		if !slices.Equal(node.OtherSet, []string{"n0", "n1", "n2"}) || node.Status != doctor.StatusUnfit {
			t.Errorf("under another name, while one is away: got %+v", node)
		}
	}
}

// Of a Sentinel the report says what to add to its URL, as the error that a client gets does.
func TestExamineASentinel(t *testing.T) {
	t.Parallel()
	c := locktest.WithQuarantine(redistest.NewSentinel(t, "set", redistest.New(t), 1).URL())
	if node := locktest.Examine(t, c)[0]; node.Status != doctor.StatusUnfit || !strings.Contains(node.Reason.Error(), "?master_set=NAME") {
		t.Errorf("got %v because of %v", node.Status, node.Reason)
	}
	if err := locktest.TryUntilAnswered(t, locktest.Open(t, c), "x"); !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "?master_set=NAME") {
		t.Errorf("a client gets %v", err)
	}
	if r := locktest.Examine(t, c)[0]; r.Refusal != nil || r.Missing != nil {
		t.Errorf("what a Sentinel need not do: %v, %q", r.Refusal, r.Missing)
	}
}

func TestExamineMeasuresTheClock(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{ClockShim: true})
	for _, step := range []time.Duration{0, 30 * time.Second, -time.Minute} {
		if err := server.StepClock(step); err != nil {
			t.Fatal(err)
		}
	}
	const want = -30 * time.Second
	node := locktest.Examine(t, locktest.WithQuarantine(server.URL()))[0]
	if off := (node.ClockOffset - want).Abs(); !node.ClockKnown || node.ClockError <= 0 || off > node.ClockError+time.Millisecond {
		t.Errorf("got %v ± %v, want %v", node.ClockOffset, node.ClockError, want)
	}
}
