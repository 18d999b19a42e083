package redistest

import (
	"context"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// aSlot is the slot of the key "a", the last of three masters'.
const aSlot = 15495

// newCluster starts three masters with a replica each, which are promoted by
// order only.
func newCluster(t *testing.T, o Options) *Cluster {
	t.Helper()
	o.Args = append(o.Args, "--cluster-replica-no-failover", "yes")
	return NewClusterWithReplicas(t, 3, 1, o)
}

func owner(t *testing.T, c *Cluster, slot int) *Server {
	t.Helper()
	s, err := c.Owner(slot)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func slots(t *testing.T, c *Cluster, s *Server) []int {
	t.Helper()
	slots, err := c.SlotsOf(s)
	if err != nil {
		t.Fatal(err)
	}
	return slots
}

func wantOwner(t *testing.T, c *Cluster, slot int, want *Server) {
	t.Helper()
	if s := owner(t, c, slot); s != want {
		t.Fatalf("slot %d is at %s, want %s", slot, s.Addr(), want.Addr())
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestClusterWithReplicas(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		c := newCluster(t, o)
		for i, m := range c.Masters {
			if replicas, err := c.ReplicasOf(m); err != nil || !slices.Equal(replicas, c.Replicas[i:i+1]) {
				t.Errorf("replicas of the master %d: %v, %v", i, replicas, err)
			}
			if master, err := c.MasterOf(c.Replicas[i]); err != nil || master != m {
				t.Errorf("master of the replica %d: %v, %v", i, master, err)
			}
		}
		wantOwner(t, c, aSlot, c.Masters[2])
		if n := len(slots(t, c, c.Masters[0])); n != 5461 {
			t.Errorf("the first master has %d slots", n)
		}
		do(t, c.Masters[2], "SET", "a", "v")
		want(t, "replicas that have it", do(t, c.Masters[2], "WAIT", "1", "0"), int64(1))
	})
}

// A key goes along with its slot when it is moved, and not when the slot is given.
func TestClusterSlotMovesAndIsGiven(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		c := newCluster(t, o)
		do(t, c.Masters[2], "SET", "a", "v")
		do(t, c.Masters[2], "SET", "{a}b", "v")
		late := c.NewMaster(t)
		if n := len(slots(t, c, late)); n != 0 {
			t.Fatalf("a new master has %d slots", n)
		}
		var between []string
		must(t, c.MoveSlot(within(t), aSlot, late, func(key string) { between = append(between, key) }))
		slices.Sort(between)
		if !slices.Equal(between, []string{"", "a", "{a}b"}) {
			t.Errorf("called between: %q", between)
		}
		wantOwner(t, c, aSlot, late)
		want(t, "GET at the new master", do(t, late, "GET", "a"), "v")
		want(t, "GET at the new master", do(t, late, "GET", "{a}b"), "v")

		must(t, c.GiveSlots(within(t), c.Masters[0], aSlot, aSlot+1))
		wantOwner(t, c, aSlot, c.Masters[0])
		wantOwner(t, c, aSlot+1, c.Masters[0])
		want(t, "EXISTS at the third master", do(t, c.Masters[0], "EXISTS", "a"), int64(0))
		want(t, "DBSIZE at the second", do(t, c.Masters[2], "DBSIZE"), int64(0))
		must(t, c.AwaitServing(within(t)))
	})
}

// A master dies, and its slots are given to the others, empty.
func TestClusterFix(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		c := newCluster(t, o)
		do(t, c.Masters[2], "SET", "a", "v")
		c.Masters[2].Kill()
		c.Replicas[2].Kill()
		given, err := c.Fix(within(t))
		if err != nil || given != 5462 {
			t.Fatalf("fixed: %d slots, %v", given, err)
		}
		s := owner(t, c, aSlot)
		want(t, "EXISTS at the new master", do(t, s, "EXISTS", "a"), int64(0))
		if a, b := len(slots(t, c, c.Masters[0])), len(slots(t, c, c.Masters[1])); a+b != 16384 || a < 8191 || b < 8191 {
			t.Errorf("the masters have %d and %d slots", a, b)
		}
		// Who was a master of slots that others have is a replica, or has none.
		must(t, c.Restart(t.Context(), c.Masters[2]))
		must(t, c.AwaitServing(within(t)))
		if n := len(slots(t, c, c.Masters[2])); n != 0 {
			t.Errorf("the former master has %d slots", n)
		}
	})
}

// A slot that others take to be its former owner's, and that nobody claims, is given.
func TestClusterFixSettlesWhoHasASlot(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		c := newCluster(t, o)
		do(t, c.Masters[2], "CLUSTER", "DELSLOTS", strconv.Itoa(aSlot))
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := c.AwaitAgreement(ctx); err == nil {
			t.Fatal("they agree on a slot that its owner does not have")
		}
		if given, err := c.Fix(within(t)); err != nil || given != 1 {
			t.Fatalf("fixed: %d slots, %v", given, err)
		}
		if given, err := c.Fix(within(t)); err != nil || given != 0 {
			t.Fatalf("fixed again: %d slots, %v", given, err)
		}
	})
}

// What GiveSlots sends is what redis-cli --cluster fix does.
func TestClusterFixIsThatOfTheTool(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		tool, err := exec.LookPath(strings.TrimSuffix(o.Binary, "-server") + "-cli")
		if err != nil {
			t.Skip(err)
		}
		o.Args = append(o.Args, "--cluster-allow-replica-migration", "no")
		c := NewClusterWithReplicas(t, 4, 0, o)
		// Few slots, as the tool takes them one by one.
		var most []int
		for slot := range 4096 {
			if slot != 4000 {
				most = append(most, slot)
			}
		}
		must(t, c.GiveSlots(within(t), c.Masters[1], most...))
		for _, s := range c.Masters[1:] {
			do(t, s, "CONFIG", "RESETSTAT")
		}
		c.Masters[0].Kill()
		fix := exec.CommandContext(within(t), tool, "--cluster", "fix", c.Masters[1].Addr(), "--cluster-fix-with-unreachable-masters")
		fix.Stdin = strings.NewReader("yes\n")
		out, err := fix.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		must(t, c.AwaitServing(within(t)))
		if s := owner(t, c, 4000); s == c.Masters[0] {
			t.Fatalf("the slot was not given\n%s", out)
		}
		sent := make(map[string]int)
		for _, s := range c.Masters[1:] { // it gives slots to any master
			stats, err := s.Info("commandstats")
			must(t, err)
			for name := range stats {
				sent[strings.TrimPrefix(name, "cmdstat_")]++
			}
		}
		for _, name := range []string{"multi", "cluster|delslots", "cluster|addslots", "cluster|bumpepoch", "exec"} {
			if sent[name] != 1 {
				t.Errorf("the tool has sent %s to %d masters, want 1", name, sent[name])
			}
		}
		for _, name := range []string{"cluster|setslot", "migrate"} {
			if sent[name] != 0 {
				t.Errorf("the tool has sent %s", name)
			}
		}
	})
}

// In agreement nothing is lost; a replica that takes over has lost what was held
// back from it, and so has its master when it takes the place back.
func TestClusterFailsOverAndBack(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		c := newCluster(t, o)
		master, replica := c.Masters[2], c.Replicas[2]
		do(t, master, "SET", "a", "1")
		must(t, c.FailOver(within(t), replica))
		wantOwner(t, c, aSlot, replica)
		want(t, "GET at the promoted replica", do(t, replica, "GET", "a"), "1")
		must(t, c.FailOver(within(t), master))
		wantOwner(t, c, aSlot, master)
		if err := c.FailOver(within(t), master); err == nil {
			t.Error("a master took its own place")
		}
		must(t, c.AwaitServing(within(t)))

		pids := [2]int{master.PID(), replica.PID()}
		do(t, master, "SET", "a", "2")
		must(t, c.HoldReplication(within(t), master, true))
		do(t, master, "SET", "a", "3")
		must(t, c.TakeOver(within(t), replica))
		want(t, "GET at the replica that took over", do(t, replica, "GET", "a"), "2")
		must(t, c.HoldReplication(within(t), master, false))
		must(t, c.AwaitServing(within(t)))
		must(t, c.TakeOver(within(t), master))
		wantOwner(t, c, aSlot, master)
		want(t, "GET at the former master", do(t, master, "GET", "a"), "2")
		must(t, c.AwaitServing(within(t)))

		must(t, c.HoldReplication(within(t), master, true))
		do(t, master, "SET", "a", "4")
		must(t, c.FailOverByForce(within(t), replica))
		want(t, "GET at the replica that was promoted by force", do(t, replica, "GET", "a"), "2")
		if pids != [2]int{master.PID(), replica.PID()} {
			t.Error("a process is another")
		}
	})
}

// Who is frozen or dead is not waited for.
func TestClusterLiving(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		c := newCluster(t, o)
		must(t, c.Masters[0].Pause())
		c.Replicas[1].Kill()
		if n := len(c.Living()); n != 4 {
			t.Errorf("%d are living, want 4", n)
		}
		start := time.Now()
		must(t, c.AwaitAgreement(within(t)))
		wantOwner(t, c, 0, c.Masters[0])
		if d := time.Since(start); d > doLimit {
			t.Errorf("a frozen server was waited for: %v", d)
		}
		must(t, c.Masters[0].Resume())
		must(t, c.RestartEmpty(t.Context(), c.Replicas[1]))
		must(t, c.AwaitServing(within(t)))
		if n := len(c.Living()); n != 6 {
			t.Errorf("%d are living, want 6", n)
		}
	})
}
