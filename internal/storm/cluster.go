package storm

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/redistest"
)

// NewCluster starts three masters, each with that many replicas. No replica is promoted
// but by order, and what is left of the Cluster serves when a master does not. It
// returns a config of a deployment on it with the quarantine, which lacks Nodes, and
// how long a master is waited for that may have forgotten locks.
func NewCluster(t *testing.T, binary string, replicasEach int, maxTTL time.Duration, args ...string) (*redistest.Cluster, redlatch.Config, time.Duration) {
	t.Helper()
	cluster := redistest.NewClusterWithReplicas(t, 3, replicasEach, redistest.Options{Binary: binary, Args: append([]string{
		"--cluster-replica-no-failover", "yes", "--cluster-require-full-coverage", "no",
	}, args...)})
	return cluster, redlatch.Config{
		TTL:         maxTTL,
		MaxTTL:      maxTTL,
		NodeTimeout: time.Second,
		Deployment:  NameAt(2), // what is kept under its name is at the last master
	}, maxTTL + 4*time.Second
}

// Admit has a client vouch for all masters of the Cluster that it calls [Node].
func Admit(t *testing.T, client *redlatch.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := client.Admit(ctx, Node)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("after %v the Cluster is not vouched for: %v", patience, err)
		}
		Rest(ctx, time.Millisecond)
	}
}

// SlotOf is the slot of a name.
func SlotOf(name string) int { return int(hashslot.Of(hashslot.Tag(name))) }

// NameAt returns a name that the i-th of three masters has.
func NameAt(i int) string {
	for n := 0; ; n++ {
		name := "job" + strconv.Itoa(n)
		if slot := int(hashslot.Of(name)); slot >= hashslot.Slots*i/3 && slot < hashslot.Slots*(i+1)/3 {
			return name
		}
	}
}

// NamesAt returns n names that the i-th of three masters has, in different slots,
// none of which NameAt returns.
func NamesAt(i, n int) []string {
	names := make([]string, 0, n)
	slots := map[int]bool{SlotOf(NameAt(i)): true}
	for k := 0; len(names) < n; k++ {
		name := "unused" + strconv.Itoa(k)
		slot := SlotOf(name)
		if slot*3/hashslot.Slots == i && (slot+1)*3/hashslot.Slots == i && !slots[slot] {
			slots[slot] = true
			names = append(names, name)
		}
	}
	return names
}

// TimeOf reads what TIME answered.
func TimeOf(reply any) time.Time {
	parts := reply.([]any)
	var seconds, micros int64
	fmt.Sscan(fmt.Sprint(parts[0]), &seconds)
	fmt.Sscan(fmt.Sprint(parts[1]), &micros)
	return time.Unix(seconds, micros*1000)
}

// Rest lets others work for d, or until ctx is done.
func Rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
