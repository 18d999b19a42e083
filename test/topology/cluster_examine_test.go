package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// What is reported of each master's right to vote is what a client then meets in its slots: of
// one that nobody has used, that was vouched for, that took its master's place, that was given
// a slot without its keys, and that hangs.
func TestExamineClusterForetellsTheVote(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		c := newHurtCluster(t, binary, 1, locktest.Patience)
		used := 0
		// look has each of the masters, and by them the Cluster, be as it should, and has clients
		// find the same.
		look := func(what string, want map[*redistest.Server]doctor.Status) {
			t.Helper()
			report := locktest.Examine(t, c.config)[0]
			if report.Err != nil || report.Cluster == nil || len(report.Cluster.Masters) != 3 || report.Cluster.Unserved != 0 {
				t.Fatalf("%s: %+v", what, report)
			}
			worst := doctor.StatusAdmissible
			for server, status := range want {
				i := slices.IndexFunc(report.Cluster.Masters, func(m doctor.Master) bool { return m.Node == server.Addr() })
				if i < 0 {
					t.Fatalf("%s: no master is at %s: %+v", what, server.Addr(), report.Cluster)
				}
				m := report.Cluster.Masters[i]
				if m.Status != status || (m.Reason != nil) != (status != doctor.StatusAdmissible) || (m.Left > 0) != (status == doctor.StatusWaiting) {
					t.Errorf("%s: %s: %v because of %v for %v (%v), want %v", what, m.Node, m.Status, m.Reason, m.Left, m.Err, status)
				}
				worst = max(worst, status)
			}
			if report.Status != worst {
				t.Errorf("%s: the Cluster: %v because of %v", what, report.Status, report.Reason)
			}
			for server, status := range want {
				slots, err := c.SlotsOf(server)
				must(t, err)
				used++ // a slot that was used votes still when its master has got another
				name := nameIn(slots[used])
				lock, err := locktest.TryInTime(t, locktest.Open(t, c.config), name)
				switch votes := status == doctor.StatusAdmissible; {
				case votes && err != nil:
					t.Errorf("%s: %q: %v", what, name, err)
				case votes:
					locktest.Unlock(t, lock)
				case err == nil || locktest.VerdictOf(t, err, 0).Verdict != redlatch.VoteNotAdmitted:
					t.Errorf("%s: %q: %v, and it is not to vote", what, name, err)
				}
			}
		}
		const waits, votes = doctor.StatusWaiting, doctor.StatusAdmissible

		for range 2 { // looking begins no wait
			if r := locktest.Examine(t, c.config)[0]; r.Status != waits || r.Left < c.d || r.Recorded != nil {
				t.Errorf("never used: %v for %v because of %v, recorded %+v", r.Status, r.Left, r.Reason, r.Recorded)
			}
		}
		client := locktest.Open(t, c.config)
		c.admit(t, client)
		all := map[*redistest.Server]doctor.Status{c.Masters[0]: votes, c.Masters[1]: votes, c.Masters[2]: votes}
		look("vouched for", all)

		report := locktest.Examine(t, c.config)[0]
		if report.Recorded == nil || !report.Recorded.Agrees || report.Replicas != 3 || report.Durable {
			t.Errorf("the whole: %+v", report)
		}
		runs := make(map[string]string)
		for _, s := range c.Masters {
			info, err := s.Info("server")
			must(t, err)
			runs[s.Addr()] = info["run_id"]
		}
		for _, m := range report.Cluster.Masters {
			if m.State != "ok" || m.RunID != runs[m.Node] || m.Role != "master" || m.Replicas != 1 || !m.ClockKnown || m.Missing != nil || m.Refusal != nil || m.User != "default" {
				t.Errorf("a master: %+v", m)
			}
		}

		must(t, c.FailOver(locktest.Within(t, locktest.Patience), c.Replicas[0]))
		look("one failed over", map[*redistest.Server]doctor.Status{c.Replicas[0]: waits, c.Masters[1]: votes, c.Masters[2]: votes})
		c.admit(t, client)
		look("vouched for again", map[*redistest.Server]doctor.Status{c.Replicas[0]: votes, c.Masters[1]: votes, c.Masters[2]: votes})

		slots, err := c.SlotsOf(c.Masters[2])
		must(t, err)
		must(t, c.GiveSlots(locktest.Within(t, locktest.Patience), c.Masters[1], slots[0]))
		look("one slot without its keys", map[*redistest.Server]doctor.Status{c.Replicas[0]: votes, c.Masters[1]: waits, c.Masters[2]: votes})
	})
}

// nameIn returns a name in the slot.
func nameIn(slot int) string { return "{" + hashslot.TagOf(uint16(slot)) + "}" }

// The rights that package redlatch names for a Cluster are enough, and what a user lacks at one
// master is found there, be it for a lock that another master has.
func TestExamineClusterFindsMissingPermissions(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary})
		rights := strings.Fields("~job/* ~redlatch:* &redlatch:wake:* +eval +evalsha +info +ping +time +get +mget +set +psetex +del +pttl +pexpire " +
			"+zadd +zrem +zrange +zrank +zscore +client|tracking +client|caching +cluster +asking +spublish +ssubscribe")
		const name = "job/1"
		has := storm.SlotOf(name) * 3 / hashslot.Slots // the master of its slot
		for i, c := range []struct {
			without string
			at      int
			missing []string
		}{
			{"nothing", 0, nil},
			{"~job/*", has, []string{"~" + name}},
			{"~job/*", (has + 1) % 3, []string{"~" + name}},
			{"~redlatch:*", (has + 2) % 3, []string{"~redlatch:*"}},
			{"+zadd", 1, []string{"+zadd"}},
			{"+spublish", 2, []string{"&redlatch:wake:*", "+spublish", "+ssubscribe"}},
			{"+ssubscribe", 0, []string{"+ssubscribe"}},
			{"+cluster", 2, []string{"+cluster|nodes"}},
		} {
			user := fmt.Sprint("u", i)
			for k, s := range servers {
				has := slices.DeleteFunc(slices.Clone(rights), func(rule string) bool { return k == c.at && rule == c.without })
				locktest.Do(t, s, append([]string{"ACL", "SETUSER", user, "on", ">p"}, has...)...)
			}
			for _, m := range locktest.Examine(t, locktest.Config(servers[(c.at+1)%3].URLAs(user, "p")+"?cluster"), name)[0].Cluster.Masters {
				want := c.missing
				if m.Node != servers[c.at].Addr() {
					want = nil
				}
				if blind := c.without == "+cluster" && want != nil; (m.State == "") != blind || strings.Contains(fmt.Sprint(m.Reason), "cluster_state") {
					t.Errorf("without %s at %s: %s is %q: %v", c.without, servers[c.at].Addr(), m.Node, m.State, m.Reason)
				}
				if m.Err != nil || m.User != user || !slices.Equal(m.Missing, want) || m.Refusal != nil {
					t.Errorf("without %s at %s: %s is missing %q, want %q (%v, %v)", c.without, servers[c.at].Addr(), m.Node, m.Missing, want, m.Refusal, m.Err)
				}
			}
		}
	})
}

// A Cluster under two names is one, which clients refuse.
func TestExamineOneClusterTwice(t *testing.T) {
	t.Parallel()
	servers := redistest.NewCluster(t, 3)
	reports := locktest.Examine(t, locktest.WithQuarantine(servers[0].URL()+"?cluster", servers[1].URL()+"?cluster"))
	for i, r := range reports {
		if r.Err != nil || r.Status != doctor.StatusUnfit || !strings.Contains(r.Reason.Error(), "are one Cluster") {
			t.Errorf("%s: %v because of %v (%v)", r.Node, r.Status, r.Reason, r.Err)
		}
		for _, m := range r.Cluster.Masters {
			if (m.SameAs == "n0") != (i == 1) {
				t.Errorf("%s of %s is the same as %q", m.Node, r.Node, m.SameAs)
			}
		}
	}
}

// A master that hangs is said not to answer, and the others are judged beside it, be it the one
// that is asked for the masters first. The keys of a lock are looked at where they are.
func TestExamineClusterBesideAMasterThatHangs(t *testing.T) {
	t.Parallel()
	servers := redistest.NewCluster(t, 3, redistest.Options{Args: []string{"--cluster-node-timeout", "60000"}})
	conf := locktest.Config(clusterURL(servers))
	client := locktest.Open(t, conf)
	name := storm.NameAt(1)
	lock, err := locktest.AwaitAnswer(t, client, name)
	if err != nil {
		t.Fatal(err)
	}
	locktest.Unlock(t, lock)
	locktest.Do(t, servers[1], "SET", "redlatch:{"+name+"}:token:"+name, "x")
	if err := servers[0].Pause(); err != nil {
		t.Fatal(err)
	}
	report := locktest.Examine(t, conf, name)[0]
	if err := servers[0].Resume(); err != nil {
		t.Fatal(err)
	}
	if report.Err != nil || report.Cluster == nil || len(report.Cluster.Masters) != 3 || report.Status != doctor.StatusUnclear {
		t.Fatalf("%+v", report)
	}
	for _, m := range report.Cluster.Masters {
		switch i := slices.IndexFunc(servers, func(s *redistest.Server) bool { return s.Addr() == m.Node }); {
		case i == 0:
			if m.Err == nil || m.Status != doctor.StatusUnclear {
				t.Errorf("the one that hangs: %+v", m)
			}
		case m.Err != nil || m.Status != doctor.StatusAdmissible:
			t.Errorf("another: %+v", m)
		case i == 1:
			if len(m.ForeignKeys) != 1 || !strings.Contains(m.ForeignKeys[0].Problem, "no number") {
				t.Errorf("the keys of %q: %+v", name, m.ForeignKeys)
			}
		case m.ForeignKeys != nil:
			t.Errorf("keys of a slot of another: %+v", m.ForeignKeys)
		}
	}
}
