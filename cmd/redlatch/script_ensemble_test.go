//go:build unix

package main

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/redlatch/redlatch/internal/ensembletest"
)

// TestEnsembles runs the scripts in testdata/ensemble over ZooKeeper and over etcd: $servers are host:port of
// their servers, and $scheme is zk or etcd.
func TestEnsembles(t *testing.T) {
	for scheme, start := range map[string]func(*testing.T) []string{
		"zk": func(t *testing.T) []string {
			if why := ensembletest.ZooKeeperMissing(); why != "" {
				skipOutsideCI(t, why)
			}
			return ensembletest.NewZooKeeper(t, ensembletest.Options{Folder: t.TempDir(), Settings: []string{"maxSessionTimeout=60000"}}).Addrs()
		},
		"etcd": func(t *testing.T) []string {
			if why := ensembletest.EtcdMissing(); why != "" {
				skipOutsideCI(t, why)
			}
			return ensembletest.NewEtcd(t, ensembletest.Options{Folder: t.TempDir()}).Addrs()
		},
	} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			servers := start(t)
			p := scripts("testdata/ensemble")
			setup := p.Setup
			var mu sync.Mutex // guards n
			n := 0
			p.Setup = func(env *testscript.Env) error {
				mu.Lock()
				defer mu.Unlock()
				n++
				env.Setenv("scheme", scheme)
				env.Setenv("servers", strings.Join(servers, ","))
				env.Setenv("REDLATCH_NODES", scheme+"://"+strings.Join(servers, ",")+"/"+strings.Repeat("x", n))
				err := setup(env)
				env.Setenv("REDLATCH_NO_QUARANTINE", "")
				return err
			}
			t.Run("scripts", func(t *testing.T) { testscript.Run(t, p) }) // the servers outlive them
		})
	}
}

// skipOutsideCI skips a test that needs what is not installed. In CI that fails it.
func skipOutsideCI(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}
