package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/seed"
)

// A condition is what a node, or the way to it, is in when an attempt meets it.
type condition struct {
	name string
	// begin brings it about; end undoes it.
	begin func(p *redistest.Proxy) error
	end   func(p *redistest.Proxy) error
	// yes: its answer counts. reached: messages get there while it lasts.
	yes, reached bool
}

func hold(dir redistest.Direction) (begin, end func(p *redistest.Proxy) error) {
	return func(p *redistest.Proxy) error { p.HoldBack(dir, true); return nil },
		func(p *redistest.Proxy) error { p.HoldBack(dir, false); return nil }
}

// lateBy is longer than NodeTimeout, after which nobody waits for an answer.
const lateBy = 1400 * time.Millisecond

func conditions() []condition {
	nothing := func(*redistest.Proxy) error { return nil }
	delay := func(dir redistest.Direction, d time.Duration) (begin, end func(p *redistest.Proxy) error) {
		return func(p *redistest.Proxy) error { p.Delay(dir, d, 0); return nil },
			func(p *redistest.Proxy) error { p.Delay(dir, 0, 0); return nil }
	}
	slow, fast := delay(redistest.Both, 15*time.Millisecond)
	late, inTime := delay(redistest.Replies, lateBy)
	overdue, onTime := delay(redistest.Requests, lateBy)
	hung, thawed := hold(redistest.Requests)
	deaf, hearing := hold(redistest.Replies)
	return []condition{
		{"up", nothing, nothing, true, true},
		{"taken", nothing, nothing, false, true},
		{"refusing", func(p *redistest.Proxy) error { defer p.Cut(); return p.Refuse(true) },
			func(p *redistest.Proxy) error { return p.Refuse(false) }, false, false},
		{"hung", hung, thawed, false, false},
		{"lost", func(p *redistest.Proxy) error { p.BlackHole(redistest.Both, true); return nil },
			func(p *redistest.Proxy) error { p.BlackHole(redistest.Both, false); return nil }, false, false},
		{"deaf", deaf, hearing, false, true},
		{"slow", slow, fast, true, true},
		{"late", late, inTime, false, true},
		{"overdue", overdue, onTime, false, false},
	}
}

func named(name string) condition {
	all := conditions()
	return all[slices.IndexFunc(all, func(c condition) bool { return c.name == name })]
}

type mask []condition

func (m mask) String() string {
	names := make([]string, len(m))
	for i, c := range m {
		names[i] = c.name
	}
	return strings.Join(names, ",")
}

func (m mask) count(is func(condition) bool) int {
	n := 0
	for _, c := range m {
		if is(c) {
			n++
		}
	}
	return n
}

// covering returns masks of n nodes: for each condition the numbers of nodes
// around the quorum, each mix of two for small n, and some at random.
func covering(n int, rng *rand.Rand) []mask {
	var masks []mask
	seen := make(map[string]bool)
	add := func(m mask) {
		if !seen[m.String()] {
			seen[m.String()] = true
			masks = append(masks, m)
		}
	}
	all := conditions()
	fill := func(bad condition, count int) mask {
		m := make(mask, n)
		for i, place := range rng.Perm(n) {
			m[place] = named("up")
			if i < count {
				m[place] = bad
			}
		}
		return m
	}
	need := n/2 + 1
	for _, c := range all {
		for _, count := range []int{n - need, n - need + 1} {
			add(fill(c, count))
		}
	}
	add(fill(named("taken"), n))
	for len(masks) < 24 && len(masks) < pow(len(all), n) {
		m := make(mask, n)
		for i := range m {
			m[i] = all[rng.IntN(len(all))]
		}
		add(m)
	}
	return masks
}

func pow(base, exponent int) int {
	p := 1
	for range exponent {
		p *= base
	}
	return p
}

// cleanups collects how long it took until nothing was left.
type cleanups struct {
	mu   sync.Mutex // guards what follows
	took []time.Duration
}

func (c *cleanups) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took = append(c.took, d)
}

func (c *cleanups) report(t *testing.T, what string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.took)
	if n := len(c.took); n > 0 {
		t.Logf("%s: %d times, median %v, 99%% %v, longest %v", what, n, c.took[n/2], c.took[n*99/100], c.took[n-1])
	}
}

// A covering set of masks on real servers: the right verdict, and afterwards
// nothing of ours on any node that can be reached, and none on the others once
// they can.
func TestMasks(t *testing.T) {
	t.Parallel()
	base := seed.Of(t)
	var reachable, others cleanups
	t.Cleanup(func() {
		reachable.report(t, "nothing left on reachable nodes after")
		others.report(t, "nothing left on nodes that came back after")
	})
	for n := 1; n <= 5; n++ {
		for i, m := range covering(n, rand.New(rand.NewPCG(base, uint64(n)))) {
			for _, cut := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d.%d %v cut=%t", n, i, m, cut), func(t *testing.T) {
					t.Parallel()
					meet(t, slices.Clone(m), cut, &reachable, &others)
				})
			}
		}
	}
}

// meet makes one attempt against the mask. With cut its ctx ends before any
// node that says yes has answered.
func meet(t *testing.T, m mask, cut bool, reachable, others *cleanups) {
	nodes := locktest.Shared(t, len(m))
	proxies := redistest.Proxies(t, nodes)
	client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
	name := t.Name()
	for i := range m { // open does not wait for a busy machine
		locktest.Await(t, "the node is admitted", func() bool { return client.Admit(t.Context(), fmt.Sprint("n", i)) == nil })
	}
	for i, c := range m {
		if cut && c.yes {
			c, m[i] = named("deaf"), named("deaf")
		}
		if c.name == "taken" {
			locktest.Do(t, nodes[i], "SET", name, "theirs", "PX", "60000")
		}
		if err := c.begin(proxies[i]); err != nil {
			t.Fatal(err)
		}
	}
	var lock *redlatch.Lock
	var err error
	attempt := func() (took time.Duration) {
		ctx := t.Context()
		if cut {
			ctx = locktest.Within(t, 5*time.Millisecond)
		}
		start := time.Now()
		lock, err = client.TryLock(ctx, name)
		return time.Since(start)
	}
	deadline := time.Now().Add(locktest.Patience)
	for took := attempt(); m.disturbed(cut, took, err) && time.Now().Before(deadline); took = attempt() {
		if lock != nil {
			locktest.Unlock(t, lock)
		}
		for i, c := range m {
			if c.reached {
				awaitOnlyTheirs(t, m, i, nodes[i], name)
			}
		}
	}
	end := time.Now()
	checkVerdict(t, m, cut, lock, err)
	if lock != nil {
		locktest.Unlock(t, lock)
		end = time.Now()
	}
	for i, c := range m {
		if c.reached {
			awaitOnlyTheirs(t, m, i, nodes[i], name)
		}
	}
	reachable.add(time.Since(end))

	for i, c := range m {
		if err := c.end(proxies[i]); err != nil {
			t.Fatal(err)
		}
	}
	end = time.Now()
	for i := range m {
		awaitOnlyTheirs(t, m, i, nodes[i], name)
	}
	others.add(time.Since(end))
	for i, c := range m {
		if c.name == "taken" {
			locktest.Do(t, nodes[i], "DEL", name)
		}
	}
	// What it left in passing is bounded in time.
	for _, s := range nodes {
		counter := "redlatch:{" + name + "}:token:" + name
		if left := locktest.Remaining(t, s, counter); left == -1*time.Millisecond {
			t.Errorf("%s has no expiry on %s", counter, s.Addr())
		}
	}
}

// disturbed reports whether a busy machine may have decided the attempt: it took so long that answers which come
// too late were there as well; or it failed, and a node whose answer would have counted has not answered.
func (m mask) disturbed(cut bool, took time.Duration, err error) bool {
	failure, ok := errors.AsType[*redlatch.QuorumError](err)
	switch {
	case took >= lateBy:
		return true
	case cut || !ok:
		return false
	case m.count(func(c condition) bool { return c.yes }) >= failure.Need && locktest.Late(err):
		return true
	}
	for i, c := range m {
		if a := failure.Nodes[i]; (c.yes || c.name == "taken") && a.Err != nil && (a.Verdict == redlatch.VoteUnknown || a.Verdict == redlatch.VoteNotSent) {
			return true
		}
	}
	return false
}

// awaitOnlyTheirs waits until node i has nothing of ours.
func awaitOnlyTheirs(t *testing.T, m mask, i int, s *redistest.Server, name string) {
	t.Helper()
	want := ""
	if m[i].name == "taken" {
		want = "theirs"
	}
	locktest.AwaitValue(t, s, name, want)
}

func checkVerdict(t *testing.T, m mask, cut bool, lock *redlatch.Lock, err error) {
	t.Helper()
	need := len(m)/2 + 1
	yes := m.count(func(c condition) bool { return c.yes })
	taken := m.count(func(c condition) bool { return c.name == "taken" })
	// These answer at once, and may decide before ctx ends.
	no := m.count(func(c condition) bool { return c.name == "taken" || c.name == "refusing" })
	failure, _ := errors.AsType[*redlatch.QuorumError](err)
	switch {
	case !cut && (lock != nil) != (yes >= need):
		t.Errorf("held is %t with %d of %d nodes: %v", lock != nil, yes, len(m), err)
	case cut && lock != nil:
		t.Errorf("held after ctx was done")
	case lock != nil:
		if err != nil || lock.Token() == 0 || lock.Err() != nil {
			t.Errorf("held with token %d, %v, %v", lock.Token(), lock.Err(), err)
		}
		return
	case cut && failure == nil && errors.Is(err, context.DeadlineExceeded):
		return // a starved machine: ctx was done before anything was tried
	case failure == nil || len(failure.Nodes) != len(m) || failure.Need != need || failure.Of != len(m) || failure.Op != "lock":
		t.Errorf("the error does not tell of the nodes: %#v", err)
		return
	case cut && no < len(m)-need+1 && !errors.Is(err, context.DeadlineExceeded):
		t.Errorf("ctx was done and the error does not say so: %v", err)
	case !cut && taken == 0 && errors.Is(err, redlatch.ErrHeld),
		!cut && taken > 0 && yes+taken >= need && !errors.Is(err, redlatch.ErrHeld),
		!cut && !errors.Is(err, redlatch.ErrHeld) && !errors.Is(err, redlatch.ErrNoQuorum):
		t.Errorf("%d say yes, %d are taken: %v", yes, taken, err)
	}
	for i, a := range failure.Nodes {
		right := map[string][]redlatch.Verdict{
			"up": {redlatch.VoteGranted}, "slow": {redlatch.VoteGranted}, "taken": {redlatch.VoteHeld},
			"refusing": {redlatch.VoteNotSent, redlatch.VoteUnknown}, "hung": {redlatch.VoteUnknown, redlatch.VoteNotSent},
			"lost": {redlatch.VoteUnknown, redlatch.VoteNotSent}, "deaf": {redlatch.VoteUnknown, redlatch.VoteNotSent},
			"late": {redlatch.VoteUnknown, redlatch.VoteNotSent}, "overdue": {redlatch.VoteUnknown, redlatch.VoteNotSent},
		}[m[i].name]
		notWaitedFor := a.Verdict == redlatch.VoteUnknown && (a.Err == nil || cut)
		if !slices.Contains(right, a.Verdict) && !notWaitedFor {
			t.Errorf("node %d (%s) answered %v", i, m[i].name, a)
		}
		if a.Node != fmt.Sprintf("n%d", i) {
			t.Errorf("node %d is called %q", i, a.Node)
		}
		if a.Verdict == redlatch.VoteHeld && (a.Holder.ID != "theirs" || a.Left <= 0 || a.Left > time.Minute) {
			t.Errorf("node %d: %v", i, a)
		}
	}
}
