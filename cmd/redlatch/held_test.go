//go:build unix

package main

import (
	"os/exec"
	"testing"

	"github.com/redlatch/redlatch"
)

func TestHeldRoundTrip(t *testing.T) {
	for _, name := range []string{"job", "a b", "a@b:c d", "ä/%", "x y@z"} {
		ours := ourHold(name, redlatch.Config{Nodes: []string{"redis://127.0.0.1:1"}})
		if got, ok := parseHeld(ours.String()); !ok || got != ours {
			t.Errorf("%q: %v became %v, %t", name, ours, got, ok)
		}
	}
	for _, entry := range []string{"", "job", "job@", "job@1:2", "job@1:x:3", "job@1:0:3", "%zz@1:2:3", "a@1:2:3:4"} {
		if got, ok := parseHeld(entry); ok {
			t.Errorf("%q was taken for %v", entry, got)
		}
	}
}

// Two locks are one when their key and their nodes are, however written.
func TestHeldPlace(t *testing.T) {
	base := ourHold("job", redlatch.Config{Nodes: []string{"redis://127.0.0.1:6379", "redis://b:1"}}).place
	for what, test := range map[string]struct {
		name string
		cfg  redlatch.Config
		same bool
	}{
		"order":      {"job", redlatch.Config{Nodes: []string{"redis://b:1", "redis://127.0.0.1:6379"}}, true},
		"port":       {"job", redlatch.Config{Nodes: []string{"redis://127.0.0.1", "redis://b:1"}}, true},
		"loopback":   {"job", redlatch.Config{Nodes: []string{"redis://localhost:6379", "redis://B:1"}}, true},
		"password":   {"job", redlatch.Config{Nodes: []string{"redis://u:p@127.0.0.1:6379#x", "rediss://b:1/0"}}, true},
		"deployment": {"job", redlatch.Config{Nodes: []string{"redis://127.0.0.1", "redis://b:1"}, Deployment: "x"}, true},
		"spaces":     {"job", redlatch.Config{Nodes: []string{"redis://127.0.0.1 ", " redis://b:1"}}, true},
		"no host":    {"job", redlatch.Config{Nodes: []string{"redis://:6379", "redis://b:1"}}, true},
		"db=0":       {"job", redlatch.Config{Nodes: []string{"redis://127.0.0.1?db=0", "redis://b:1/"}}, true},
		"db=1":       {"job", redlatch.Config{Nodes: []string{"redis://127.0.0.1?db=1", "redis://b:1"}}, false},
		"master":     {"job", redlatch.Config{Nodes: []string{"redis://127.0.0.1?master_set=a", "redis://b:1"}}, false},
		"name":       {"job2", redlatch.Config{Nodes: []string{"redis://127.0.0.1", "redis://b:1"}}, false},
		"template":   {"job", redlatch.Config{Nodes: []string{"redis://127.0.0.1", "redis://b:1"}, KeyTemplate: "x:{name}"}, false},
		"database":   {"job", redlatch.Config{Nodes: []string{"redis://127.0.0.1/1", "redis://b:1"}}, false},
		"node":       {"job", redlatch.Config{Nodes: []string{"redis://127.0.0.1", "redis://c:1"}}, false},
	} {
		if got := ourHold(test.name, test.cfg).place; (got == base) != test.same {
			t.Errorf("another %s: the same lock: %t", what, got == base)
		}
	}
}

// The database and the Sentinels' master tell locks apart, however written.
func TestHeldPlaceOfOneServer(t *testing.T) {
	place := func(node string) string { return ourHold("job", redlatch.Config{Nodes: []string{node}}).place }
	for _, same := range [][2]string{
		{"redis://a?db=1", "redis://a/1"},
		{"redis://a?master_set=m", "redis://a:6379?addr=b&master_set=m"},
		{"redis://a?cluster=true", "redis://a?addr=b"},
		{"unix:///s?db=0", "unix:///s"},
	} {
		if place(same[0]) != place(same[1]) {
			t.Errorf("%s and %s are two", same[0], same[1])
		}
	}
	for _, two := range [][2]string{
		{"redis://a?db=1", "redis://a?db=2"},
		{"redis://a?master_set=m", "redis://a?master_set=n"},
		{"unix:///s?db=1", "unix:///s"},
	} {
		if place(two[0]) == place(two[1]) {
			t.Errorf("%s and %s are one", two[0], two[1])
		}
	}
}

// An entry counts while the process that holds is there, and no other one with
// its number.
func TestHeldByTheLiving(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ours := ourHold("job", redlatch.Config{Nodes: []string{"redis://127.0.0.1:1"}})
	outer := ours
	outer.pid, outer.birth = cmd.Process.Pid, birth(cmd.Process.Pid)
	t.Setenv(envHeld, "rubbish "+outer.String())
	if refuseNested(ours) == nil {
		t.Error("held by a process that lives, and not refused")
	}
	if outer.birth != "" {
		outer.birth += "0"
		t.Setenv(envHeld, outer.String())
		if err := refuseNested(ours); err != nil {
			t.Errorf("another process has the number: %v", err)
		}
		outer.birth = birth(cmd.Process.Pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	t.Setenv(envHeld, outer.String())
	if err := refuseNested(ours); err != nil {
		t.Errorf("held by a process that is gone: %v", err)
	}
}
