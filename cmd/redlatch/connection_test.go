package main

import (
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

func TestWithPassword(t *testing.T) {
	for node, want := range map[string]string{
		"redis://h:1":            "redis://:p%40ss@h:1",
		"redis://user@h:1/2#a":   "redis://user:p%40ss@h:1/2#a",
		"redis://user:own@h:1":   "redis://user:own@h:1",
		"redis://:own@h:1":       "redis://:own@h:1",
		"rediss://h":             "rediss://:p%40ss@h",
		"unix:///run/redis?db=1": "unix://:p%40ss@/run/redis?db=1",
		"redis://h:%zz":          "redis://h:%zz",
	} {
		if got := withPassword(node, "p@ss"); got != want {
			t.Errorf("%s: %s, want %s", node, got, want)
		}
	}
}

// A server's words are shown without the hash of a script.
func TestAnswersNameNoScript(t *testing.T) {
	for text, want := range map[string]string{
		"ERR ACL failure in script: User a has no permissions to run the 'set' command script: 369f960080b4f0c7c9cb056e5a6c243089894dff, on @user_script:1.": "ERR ACL failure in script: User a has no permissions to run the 'set' command",
		"OOM command not allowed when used memory > 'maxmemory'. script: d6da50906f840c6673a788d916e96422495ee14b, on @user_script:56.":                      "OOM command not allowed when used memory > 'maxmemory'.",
		"NOAUTH Authentication required.": "NOAUTH Authentication required.",
	} {
		got := answers([]redlatch.NodeAnswer{{Node: "a", Verdict: redlatch.Refused, Err: errors.New(text)}})[0]
		if got != "a: refused: "+want {
			t.Errorf("%s\nwant a: refused: %s", got, want)
		}
	}
}

// The command that is shown has what the environment does not say, and no
// password.
func TestAdmitCommand(t *testing.T) {
	c := connection{Nodes: []string{"redis://u:secret@a:1", "redis://b:2"}, Deployment: defaultDeployment, MaxTTL: defaultMaxTTL}
	check := func(want string) {
		t.Helper()
		if got := c.admitCommand("a:1"); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	t.Setenv("REDLATCH_NODES", "")
	check("redlatch admit --nodes redis://u@a:1,redis://b:2 a:1")
	c.Deployment, c.MaxTTL = "blue", time.Minute
	check("redlatch admit --nodes redis://u@a:1,redis://b:2 --deployment blue --max-ttl 1m0s a:1")
	t.Setenv("REDLATCH_NODES", "redis://u:secret@a:1,redis://b:2")
	t.Setenv("REDLATCH_DEPLOYMENT", "blue")
	t.Setenv("REDLATCH_MAX_TTL", "1m")
	check("redlatch admit a:1")
}

// A node is shown as it was named: by its address, which is no URL, too.
func TestWithoutPassword(t *testing.T) {
	for node, want := range map[string]string{
		"redis://u:p@h:1/2#a": "redis://u@h:1/2#a",
		"127.0.0.1:6379":      "127.0.0.1:6379",
		"127.0.0.1:6379/3":    "127.0.0.1:6379/3",
		"#a":                  "#a",
		"[::1]:6379":          "[::1]:6379",
		"redis://u:p%@h":      "URL",
		"u:p@127.0.0.1:6379":  "URL",
	} {
		if got := withoutPassword(node); got != want {
			t.Errorf("%s: %s, want %s", node, got, want)
		}
	}
}
