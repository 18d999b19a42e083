package oneshot_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// inspect is Inspect until all nodes have answered: it waits for the last one only a little.
func inspect(t *testing.T, c caller, name string) (h oneshot.Holding) {
	t.Helper()
	locktest.Await(t, "all nodes answer", func() bool {
		var err error
		h, err = c.Inspect(t.Context(), name)
		if err != nil && !locktest.Late(err) {
			t.Fatal(err)
		}
		return err == nil && !slices.ContainsFunc(h.Nodes, func(a redlatch.NodeAnswer) bool { return a.Verdict == redlatch.VoteUnknown })
	})
	return h
}

// Who holds a lock is what a quorum says.
func TestInspect(t *testing.T) {
	t.Parallel()
	name := t.Name()
	nodes := locktest.Shared(t, 3)
	client := newCaller(t, locktest.Config(redistest.URLs(nodes)...), oneshot.CommandsAuto)
	for i, holder := range []string{"a", "b", "c"} {
		locktest.Do(t, nodes[i], "SET", name, holder, "PX", "20000")
	}
	holderIs(t, client, name, "", 0, 0) // nobody has a quorum
	locktest.Do(t, nodes[1], "SET", name, "a")
	holderIs(t, client, name, "a", 1, 20*time.Second) // a quorum as long as the first
	locktest.Do(t, nodes[0], "SET", name, "a")
	locktest.Do(t, nodes[1], "SET", name, "a", "PX", "20000")
	holderIs(t, client, name, "a", 1, 20*time.Second) // as long as the second
	locktest.Do(t, nodes[1], "SET", name, "a")
	holderIs(t, client, name, "a", -1, -1) // for ever
	if h := inspect(t, client, name); h.Nodes[2].Holder.ID != "c" || h.Nodes[2].Left <= 0 || h.Nodes[0].Left >= 0 {
		t.Errorf("%+v", h)
	}
	for i, server := range nodes {
		locktest.Do(t, server, "SET", name, "a", "PX", strconv.Itoa(100_000*(i+1)))
	}
	if h := inspect(t, client, name); h.Left <= 100*time.Second || h.Left > 200*time.Second {
		t.Errorf("a quorum keeps it for 200 s, and not for %v", h.Left)
	}
	for _, server := range nodes[:2] {
		locktest.Do(t, server, "SET", name, "", "PX", "20000")
	}
	holderIs(t, client, name, "", 1, 20*time.Second) // a foreign program's
	for _, server := range nodes {
		locktest.Do(t, server, "DEL", name)
	}
	if h := inspect(t, client, name); h.Holder.ID != "" || h.Nodes[1].Verdict != redlatch.VoteNotOurs {
		t.Errorf("%+v", h)
	}
}

// A node that is slower than the others is waited for: an operator wants to know what it has.
func TestInspectBesideASlowNode(t *testing.T) {
	t.Parallel()
	name := t.Name()
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	client := newCaller(t, locktest.Config(locktest.ProxyURLs(proxies)...), oneshot.CommandsAuto)
	for _, server := range nodes {
		locktest.Do(t, server, "SET", name, "a", "PX", "60000")
	}
	inspect(t, client, name)
	quick := 0
	proxies[2].Delay(redistest.Replies, 8*time.Millisecond, 0)
	locktest.Await(t, "all answers of five tries come", func() bool { // a busy machine may be slow
		h, err := client.Inspect(t.Context(), name)
		if err != nil && !locktest.Late(err) {
			t.Fatal(err)
		}
		if quick++; err != nil || h.Nodes[2].Verdict != redlatch.VoteHeld {
			quick = 0
		}
		return quick == 5
	})
}

// Who holds a lock is told without the nodes that hang, once a quorum has told it.
func TestInspectBesideANodeThatHangs(t *testing.T) {
	t.Parallel()
	name := t.Name()
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	c := locktest.Config(locktest.ProxyURLs(proxies)...)
	for _, server := range nodes {
		locktest.Do(t, server, "SET", name, "a", "PX", "60000")
	}
	locktest.Await(t, "it is told soon", func() bool { // a busy machine may be slow
		client := newCaller(t, c, oneshot.CommandsAuto)
		inspect(t, client, name)
		proxies[2].BlackHole(redistest.Both, true)
		defer proxies[2].Cut()
		defer proxies[2].BlackHole(redistest.Both, false)
		start := time.Now()
		h, err := client.Inspect(t.Context(), name)
		took := time.Since(start)
		if err != nil && !locktest.Late(err) || err == nil && (h.Holder.ID != "a" || h.Nodes[2].Verdict != redlatch.VoteUnknown) {
			t.Fatalf("%+v, %v", h, err)
		}
		return err == nil && took < 2*c.NodeTimeout // it has four of them to answer
	})
}

// Who holds a lock is not told before the node has answered that decides it.
func TestQueryWaitsForTheNodeThatDecides(t *testing.T) {
	t.Parallel()
	name := t.Name()
	nodes := locktest.Shared(t, 5)
	proxy := redistest.NewProxy(t, nodes[4].Addr())
	client := newCaller(t, locktest.Config(append(redistest.URLs(nodes[:4]), proxy.URL())...), oneshot.CommandsAuto)
	for i, holder := range []string{"a", "a", "b", "c", "a"} {
		locktest.Do(t, nodes[i], "SET", name, holder, "PX", "60000")
	}
	inspect(t, client, name)
	proxy.Delay(redistest.Replies, 20*time.Millisecond, 0)
	again(t, func(t *testing.T, _ string) { holderIs(t, client, name, "a", 1, time.Minute) })
}
