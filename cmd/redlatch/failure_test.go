package main

import (
	"testing"

	"github.com/redlatch/redlatch"
)

// A quorum that came too late is not said to have been missed by number.
func TestHeadlineOfALateQuorum(t *testing.T) {
	granted := redlatch.NodeAnswer{Verdict: redlatch.VoteGranted}
	late := &redlatch.QuorumError{Op: "lock", Need: 2, Of: 3, Nodes: []redlatch.NodeAnswer{granted, granted, {}}}
	want := "no quorum: 2 of 3 nodes granted it, 2 are needed, but too late, or not under one token"
	if got := headline(late, "lock"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	late.Nodes[0].Verdict = redlatch.VoteUnknown
	if got, want := headline(late, "lock"), "no quorum: 1 of 3 nodes granted it, 2 are needed"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A node on which nobody has the lock is free, whichever command asks.
func TestFailureOfALook(t *testing.T) {
	for doing, op := range map[string]string{"show": "query", "watch": "observe"} {
		err := &redlatch.QuorumError{Op: op, Need: 2, Of: 3, Nodes: []redlatch.NodeAnswer{{Node: "a", Verdict: redlatch.VoteNotOurs}}}
		if got, want := (&connection{}).failure(doing, "job", err).details[0], "a: free"; got != want {
			t.Errorf("%s: %s, want %s", doing, got, want)
		}
	}
}

// What servers of etcd and ZooKeeper refuse is told without the library's settings.
func TestRefusalsInFlags(t *testing.T) {
	for text, want := range map[string]string{
		"grant a role of Cluster.User readwrite on Cluster.Prefix and all that begins with it":                         "grant a role of the user of --nodes readwrite on the path of --nodes and all that begins with it",
		"user name is empty: give Cluster.User and Password, or a client that has a user":                              "user name is empty: name a user in --nodes",
		"give the Ensemble.User and Password for whom the nodes were made, or use another Root":                        "name in --nodes the user, with the password, for whom the nodes were made, or use another path",
		"the quota of Ensemble.Root, or of a node above it, is used up: raise it by setquota, or use another Root":     "the quota of the path of --nodes, or of a node above it, is used up: raise it by setquota, or use another path",
		"look at Ensemble.Servers, and whether these want TLS (zks:// in a URL)":                                       "look at --nodes, and whether these want TLS (zks:// in a URL)",
		"look at Cluster.Endpoints, and whether these want TLS (redlatch.Config.TLS, or etcds:// in a URL): and so on": "look at --nodes, and whether these want TLS (etcds://): and so on",
	} {
		if got := inFlags(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
