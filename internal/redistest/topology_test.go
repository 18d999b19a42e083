package redistest

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

func TestReplica(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		for _, o := range []Options{o, {Binary: o.Binary, Password: "s3cret", TLS: true}} {
			t.Run(fmt.Sprintf("tls=%v", o.TLS), func(t *testing.T) {
				master := New(t, o)
				do(t, master, "SET", "k", "v")
				replica := NewReplica(t, master)
				want(t, "GET at the replica", do(t, replica, "GET", "k"), "v")
				replica.Kill()
				if err := replica.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := replica.AwaitLink(within(t)); err != nil {
					t.Fatal(err)
				}
				want(t, "GET at the restarted replica", do(t, replica, "GET", "k"), "v")
			})
		}
	})
}

// A replica behind a proxy falls behind when its stream is held, as one does on
// a slow link; promoted, it does not know what its master had confirmed.
func TestReplicaBehindAProxy(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		master, p := behind(t, o)
		replica := NewReplica(t, master, Options{ReplicaOf: p.Addr()})
		p.HoldBack(Replies, true)
		do(t, master, "SET", "k", "v")
		do(t, replica, "REPLICAOF", "NO", "ONE")
		want(t, "EXISTS at the promoted replica", do(t, replica, "EXISTS", "k"), int64(0))
	})
}

func TestCluster(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		nodes := NewCluster(t, 3, o)
		// "a" is in slot 15495, the last node's.
		want(t, "SET at the owner", do(t, nodes[2], "SET", "a", "v"), "OK")
		_, err := nodes[0].Do("GET", "a")
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("MOVED 15495 %s", nodes[2].Addr())) {
			t.Fatalf("GET at another: %v, want MOVED to %s", err, nodes[2].Addr())
		}
		if err := nodes[2].RestartEmpty(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, s := range nodes {
			if err := s.awaitCluster(within(t), 3); err != nil {
				t.Fatalf("after a node came back empty: %v", err)
			}
		}
		want(t, "EXISTS at the owner", do(t, nodes[2], "EXISTS", "a"), int64(0))
	})
}

func TestClusterTooSmall(t *testing.T) {
	if _, err := StartCluster(t.Context(), 2, Options{}); err == nil || !strings.Contains(err.Error(), "3 at least") {
		t.Fatalf("a cluster of 2: %v, want an error that says how many", err)
	}
}

func TestSentinelFailsOver(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		o.Password = "s3cret"
		master := New(t, o)
		replica := NewReplica(t, master)
		sentinel := NewSentinel(t, "main", master, 1)
		if addr, err := sentinel.MasterAddr("main"); err != nil || addr != master.Addr() {
			t.Fatalf("the master is %s, %v, want %s", addr, err, master.Addr())
		}
		if _, err := sentinel.MasterAddr("other"); err == nil {
			t.Fatal("an unknown master has an address")
		}
		if err := sentinel.AwaitReplicas(within(t), "main", 1); err != nil {
			t.Fatal(err)
		}
		master.Kill()
		err := await(within(t), sentinel.exited(), func(context.Context) (bool, error) {
			addr, err := sentinel.MasterAddr("main")
			return addr == replica.Addr(), err
		})
		if err != nil {
			t.Fatalf("waiting for the failover: %v\n%s", err, sentinel.Log())
		}
		want(t, "SET at the new master", do(t, replica, "SET", "k", "v"), "OK")
	})
}
