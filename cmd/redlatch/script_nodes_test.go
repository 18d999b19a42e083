//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// node is a server and the proxy through which redlatch sees it, nil of a Cluster's master.
type node struct {
	server *redistest.Server
	proxy  *redistest.Proxy
}

func (n *node) close() {
	if n.proxy != nil {
		n.proxy.Close()
	}
	n.server.Close()
}

func nodeOf(ts *testscript.TestScript, name string) *node {
	n, ok := worldOf(ts).nodes[name]
	if !ok {
		ts.Fatalf("no node %q", name)
	}
	return n
}

func cluster(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, args, 1, "cluster N")
	count, err := strconv.Atoi(args[0])
	ts.Check(err)
	servers, err := redistest.StartCluster(context.Background(), count, redistest.Options{})
	ts.Check(err)
	for i, server := range servers {
		name := fmt.Sprintf("c%d", i+1)
		worldOf(ts).add(name, &node{server: server})
		ts.Setenv(name, server.URL())
	}
	ts.Setenv("REDLATCH_NODES", servers[0].URL()+"?cluster")
}

func nodes(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, args, 1, "nodes N [password]")
	count, err := strconv.Atoi(args[0])
	ts.Check(err)
	var options redistest.Options
	if len(args) > 1 {
		options.Password = args[1]
	}
	servers, err := redistest.StartNodes(context.Background(), count, options)
	ts.Check(err)
	var urls []string
	for i, server := range servers {
		proxy, err := redistest.StartProxy(server.Addr(), redistest.ProxyOptions{})
		ts.Check(err)
		name := fmt.Sprintf("n%d", i+1)
		worldOf(ts).add(name, &node{server, proxy})
		ts.Setenv(name, proxy.URL())
		urls = append(urls, proxy.URL())
	}
	ts.Setenv("REDLATCH_NODES", strings.Join(urls, ","))
}

func pause(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		ts.Check(nodeOf(ts, name).server.Pause())
	}
}

func resume(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		ts.Check(nodeOf(ts, name).server.Resume())
	}
}

func killNode(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		n := nodeOf(ts, name)
		n.server.Kill()
		if n.proxy != nil {
			n.proxy.Cut()
		}
	}
}

func partition(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		nodeOf(ts, name).proxy.BlackHole(redistest.Both, true)
	}
}

func slowReads(ts *testscript.TestScript, neg bool, args []string) {
	for name, n := range worldOf(ts).nodes {
		if !slices.Contains(args, name) {
			n.proxy.OnCommand(nil)
			continue
		}
		n.proxy.OnCommand(func(c redistest.Command) redistest.Action {
			if c.Name() == "EVAL" && c.Args[1] == script.Look.Text {
				time.Sleep(900 * time.Millisecond)
			}
			return redistest.Pass
		})
	}
}

func redis(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, args, 3, "redis NODE WANT CMD...")
	reply, err := nodeOf(ts, args[0]).server.Do(args[2:]...)
	ts.Check(err)
	if ok, err := regexp.MatchString("^(?:"+args[1]+")$", fmt.Sprint(reply)); err != nil || !ok {
		ts.Fatalf("%s: want %s, got %v", strings.Join(args[2:], " "), args[1], reply)
	}
}

func hasKey(ts *testscript.TestScript, node, lock string) bool {
	reply, err := nodeOf(ts, node).server.Do("EXISTS", lock)
	ts.Check(err)
	return reply == int64(1)
}

// late is how long a busy machine may take to do what is done already for who asked: a node
// that is not waited for may hear of it later. It is much less than the TTL of what is left behind.
const late = 4 * time.Second

// inTime reports whether something holds now or a little later. It looks often, also where the machine stood still.
func inTime(holds func() bool) bool {
	deadline := time.Now().Add(late)
	for looks := 0; !holds(); looks++ {
		if looks > 500 && time.Now().After(deadline) {
			return false
		}
		time.Sleep(2 * time.Millisecond)
	}
	return true
}

func locked(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, args, 2, "[!] locked NODE LOCK")
	if !inTime(func() bool { return hasKey(ts, args[0], args[1]) != neg }) {
		ts.Fatalf("the key %s is there: %t", args[1], neg)
	}
}

// free expects that no more than a minority of nodes has the key: one that was reached late,
// or not at all, keeps it for its TTL.
func free(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: free LOCK NODE...")
	}
	var have []string
	if !inTime(func() bool {
		have = nil
		for _, name := range args[1:] {
			if hasKey(ts, name, args[0]) {
				have = append(have, name)
			}
		}
		return 2*len(have) < len(args[1:])
	}) {
		ts.Fatalf("%s is still on %v", args[0], have)
	}
}

// forget deletes the lock's key on nodes which all have it, at once: what one has forgotten is
// given back when the lock is renewed.
func forget(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, args, 2, "forget LOCK NODE...")
	for _, name := range args[1:] {
		awaitLocked(ts, false, []string{name, args[0]})
	}
	var group sync.WaitGroup
	for _, name := range args[1:] {
		server := nodeOf(ts, name).server
		group.Go(func() { _, _ = server.Do("DEL", args[0]) }) // the script finds out
	}
	group.Wait()
}

func awaitLocked(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, args, 2, "await-locked NODE LOCK")
	eventually(ts, args[1]+" is locked", func() bool { return hasKey(ts, args[0], args[1]) })
}

// expiry looks at the server until the key is gone, and keeps the last time at
// which it was to expire.
func expiry(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, args, 3, "expiry NODE LOCK FILE")
	conn, err := nodeOf(ts, args[0]).server.Dial(context.Background())
	ts.Check(err)
	defer conn.Close()
	last := int64(0)
	eventually(ts, args[1]+" has expired", func() bool {
		reply, err := conn.Do("PEXPIRETIME", args[1])
		ts.Check(err)
		at, _ := reply.(int64)
		if at > 0 {
			last = at
		}
		return at < 0
	})
	if last == 0 {
		ts.Fatalf("the key %s was gone before it was looked at, at %v", args[1], time.Now())
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(strconv.FormatInt(last, 10)), 0o666))
}
