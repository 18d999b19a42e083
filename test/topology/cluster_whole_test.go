package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// What is said of a whole Cluster is what is worst among its masters, whichever that is.
func TestExamineWholeCluster(t *testing.T) {
	t.Parallel()
	servers := redistest.NewCluster(t, 3, redistest.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	c := locktest.WithQuarantine(clusterURL(servers))
	client := locktest.Open(t, c)
	locktest.Vouch(t, client, c.Nodes...)
	look := func() doctor.Report {
		t.Helper()
		r := locktest.Examine(t, c)[0]
		if r.Err != nil || r.Cluster == nil || len(r.Cluster.Masters) != 3 {
			t.Fatalf("%+v", r)
		}
		return r
	}
	r := look()
	if !r.Durable || r.Evicting || r.Unreadable != nil || r.Recorded == nil || !r.Recorded.Agrees || r.User != "default" {
		t.Errorf("the whole: %+v", r)
	}
	var slowest time.Duration
	for _, m := range r.Cluster.Masters {
		slowest = max(slowest, m.Latency)
	}
	if r.Latency != slowest || slowest == 0 {
		t.Errorf("a latency of %v, and the slowest master's is %v", r.Latency, slowest)
	}

	// What the masters have recorded for a client with other settings.
	shorter := c
	shorter.MaxTTL, shorter.TTL = c.MaxTTL/2, c.MaxTTL/2
	records, others := make([]string, 3), make([]string, 3)
	key := func(i int) string {
		at := slices.IndexFunc(r.Cluster.Masters, func(m doctor.Master) bool { return m.Node == servers[i].Addr() })
		slots := r.Cluster.Masters[at].Slots // the record is in the last
		return "redlatch:{" + hashslot.TagOf(uint16(slots[len(slots)-1].Last)) + "}:deployment:" + c.Deployment
	}
	for i, s := range servers {
		records[i] = locktest.Value(t, s, key(i))
		locktest.Do(t, s, "FLUSHALL")
	}
	locktest.Vouch(t, locktest.Open(t, shorter), c.Nodes...)
	for i, s := range servers {
		others[i] = locktest.Value(t, s, key(i))
		locktest.Do(t, s, "SET", key(i), records[i])
	}
	for i, s := range servers {
		locktest.Do(t, s, "SET", key(i), others[i])
		if r := look(); r.Recorded == nil || r.Recorded.Agrees || r.Recorded.MaxTTL != shorter.MaxTTL || r.Status != doctor.StatusUnfit {
			t.Errorf("%s has other settings recorded: %+v", s.Addr(), r)
		}
		locktest.Do(t, s, "DEL", key(i))
		locktest.Do(t, s, "RPUSH", key(i), "x")
		if r := look(); r.Unreadable == nil || r.Status != doctor.StatusUnfit {
			t.Errorf("%s has a record of another type: %+v", s.Addr(), r)
		}
		locktest.Do(t, s, "DEL", key(i))
		locktest.Do(t, s, "SET", key(i), records[i])

		locktest.Do(t, s, "CONFIG", "SET", "appendfsync", "everysec")
		if r := look(); r.Durable {
			t.Errorf("%s is not durable, and the Cluster is", s.Addr())
		}
		locktest.Do(t, s, "CONFIG", "SET", "appendfsync", "always")
		locktest.Do(t, s, "CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
		if r := look(); !r.Evicting {
			t.Errorf("%s evicts keys, and the Cluster does not", s.Addr())
		}
		locktest.Do(t, s, "CONFIG", "SET", "maxmemory", "0")
	}
	if r := look(); !r.Durable || r.Evicting || r.Unreadable != nil {
		t.Errorf("in the end: %+v", r)
	}
}

// Masters that keep their word on disk do not make a Cluster durable whose replicas may take their place.
func TestExamineClusterWithReplicas(t *testing.T) {
	t.Parallel()
	servers := redistest.NewClusterWithReplicas(t, 3, 1, redistest.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	r := locktest.Examine(t, locktest.WithQuarantine(clusterURL(servers.Masters)))[0]
	if r.Err != nil || r.Replicas != 3 || r.Durable {
		t.Errorf("%+v", r)
	}
	for _, m := range r.Cluster.Masters {
		if !m.Durable || m.Replicas != 1 {
			t.Errorf("a master: %+v", m)
		}
	}
}

// A Cluster that does not serve all slots refuses all locks, as each of its masters says, also where it can be read.
func TestExamineClusterThatFails(t *testing.T) {
	t.Parallel()
	servers := redistest.NewCluster(t, 3, redistest.Options{Args: []string{"--cluster-allow-reads-when-down", "yes"}})
	c := locktest.Config(fmt.Sprintf("redis://localhost:%d?cluster", servers[0].Port())) // which they do not call themselves
	client := locktest.Open(t, c)
	servers[2].Kill()
	locktest.Await(t, "it is said to fail", func() bool {
		r := locktest.Examine(t, c)[0]
		if r.Cluster == nil || len(r.Cluster.Masters) != 3 {
			t.Fatalf("%+v", r)
		}
		return !slices.ContainsFunc(r.Cluster.Masters, func(m doctor.Master) bool {
			if m.Node == servers[2].Addr() {
				return m.Err == nil
			}
			if m.Node != servers[0].Addr() && m.Node != servers[1].Addr() || m.Uptime <= 0 {
				t.Errorf("%s is up for %v", m.Node, m.Uptime)
			}
			return m.State != "fail" || m.Status != doctor.StatusUnfit || !strings.Contains(m.Reason.Error(), "its cluster_state is fail")
		})
	})
	if _, err := locktest.TryInTime(t, client, nameIn(0)); err == nil {
		t.Error("it is locked")
	}
}

// Where a Cluster does not name the hosts of its masters, they are where it was asked.
func TestExamineClusterWithoutHosts(t *testing.T) {
	t.Parallel()
	servers := redistest.NewCluster(t, 3, redistest.Options{Args: []string{"--cluster-preferred-endpoint-type", "unknown-endpoint"}})
	c := locktest.Config(servers[0].URL() + "?cluster")
	for _, m := range locktest.Examine(t, c)[0].Cluster.Masters {
		if m.Err != nil || !slices.ContainsFunc(servers, func(s *redistest.Server) bool { return s.Addr() == m.Node }) {
			t.Errorf("%s: %v because of %v", m.Node, m.Status, m.Err)
		}
	}
	locktest.Unlock(t, locktest.TryLock(t, locktest.Open(t, c), "x"))
}

// What is no Cluster, or not of one, is said to be so.
func TestExamineWhatIsNoCluster(t *testing.T) {
	t.Parallel()
	member := redistest.New(t, redistest.Options{Args: []string{"--cluster-enabled", "yes"}})
	proxy := redistest.NewProxy(t, member.Addr())
	if err := proxy.Refuse(true); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		url    string
		status doctor.Status
		reason string
	}{
		"nobody there":            {proxy.URL() + "?cluster", doctor.StatusUnclear, proxy.Addr()},
		"a Cluster without slots": {member.URL() + "?cluster", doctor.StatusUnclear, "slot"},
		"a member, by itself":     {member.URL(), doctor.StatusUnfit, "Cluster"},
		"no member":               {redistest.New(t).URL() + "?cluster", doctor.StatusUnclear, "cluster"},
	} {
		conf := locktest.Config(c.url)
		r := locktest.Examine(t, conf)[0]
		if r.Status != c.status || r.Reason == nil || !strings.Contains(r.Reason.Error(), c.reason) || r.Cluster != nil && (len(r.Cluster.Masters) > 0 || r.Err == nil) {
			t.Errorf("%s: %+v", what, r)
		}
		if lock, err := locktest.Open(t, conf).TryLock(t.Context(), "x"); err == nil {
			locktest.Unlock(t, lock)
			t.Errorf("%s: it is locked", what)
		}
	}
}
