package main

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

func TestWithPassword(t *testing.T) {
	for node, want := range map[string]string{
		"redis://h:1":            "redis://:p%40ss@h:1",
		" redis://h:1":           "redis://:p%40ss@h:1",
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
		got := answers([]redlatch.NodeAnswer{{Node: "a", Verdict: redlatch.VoteRefused, Err: errors.New(text)}})[0]
		if got != "a: refused: "+want {
			t.Errorf("%s\nwant a: refused: %s", got, want)
		}
	}
}

// The command that is shown has what the environment does not say, no password,
// and quotes for the shell.
func TestAdmitCommand(t *testing.T) {
	c := connection{Nodes: []string{"redis://a:1", "redis://b:2"}, Deployment: defaultDeployment, MaxTTL: defaultMaxTTL}
	check := func(want string) {
		t.Helper()
		if got := c.admitCommand("a:1"); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	for _, name := range []string{"NODES", "DEPLOYMENT", "MAX_TTL", "NO_QUARANTINE", "DURABLE", "PASSWORD_FILE"} {
		t.Setenv("REDLATCH_"+name, "")
	}
	check("redlatch admit --nodes redis://a:1,redis://b:2 a:1")
	c.Nodes[1] = "redis://b:2?addr=c:3&master_set=m#b;c"
	check("redlatch admit --nodes 'redis://a:1,redis://b:2?addr=c:3&master_set=m#b;c' a:1")
	for _, url := range []string{"redis://u:secret@a:1", "redis://secret@a:1", "redis://a:1?master_set=m&sentinel_password=secret", "redis://u:se/cret@a:1"} {
		c.Nodes[0] = url
		check("redlatch admit --nodes … a:1 (… stands for --nodes as given here)")
		if got, want := c.setCommand(), "redlatch deployment set --nodes … (… stands for --nodes as given here)"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	c.Deployment, c.MaxTTL, c.PasswordFile, c.NoQuarantine = "blue", time.Minute, "the file", true
	check("redlatch admit --nodes … --password-file 'the file' --deployment blue --max-ttl 1m0s --no-quarantine a:1 (… stands for --nodes as given here)")
	c.NoQuarantine, c.Durable = false, true
	check("redlatch admit --nodes … --password-file 'the file' --deployment blue --max-ttl 1m0s --durable a:1 (… stands for --nodes as given here)")
	t.Setenv("REDLATCH_NO_QUARANTINE", "true")
	check("redlatch admit --nodes … --password-file 'the file' --deployment blue --max-ttl 1m0s --no-quarantine=false --durable a:1 (… stands for --nodes as given here)")
	t.Setenv("REDLATCH_NO_QUARANTINE", "yes")
	check("redlatch admit --nodes … --password-file 'the file' --deployment blue --max-ttl 1m0s --no-quarantine=false --durable a:1 (… stands for --nodes as given here)")
	t.Setenv("REDLATCH_NO_QUARANTINE", "false")
	c.NoQuarantine, c.Durable = true, false
	check("redlatch admit --nodes … --password-file 'the file' --deployment blue --max-ttl 1m0s --no-quarantine a:1 (… stands for --nodes as given here)")
	c.Nodes[0] = "redis://u:secret@a:1"
	t.Setenv("REDLATCH_NODES", strings.Join(c.Nodes, ","))
	t.Setenv("REDLATCH_DEPLOYMENT", "blue")
	t.Setenv("REDLATCH_MAX_TTL", "1m")
	t.Setenv("REDLATCH_PASSWORD_FILE", "the file")
	t.Setenv("REDLATCH_NO_QUARANTINE", "true")
	check("redlatch admit a:1")
	t.Setenv("REDLATCH_NODES", "redis://a:1")
	if got, want := c.setCommand(), "redlatch deployment set --nodes … (… stands for --nodes as given here)"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	t.Setenv("REDLATCH_NODES", strings.Join(c.Nodes, ","))
	c.Deployment, c.MaxTTL = defaultDeployment, defaultMaxTTL // by a flag, beside the environment
	check("redlatch admit --deployment default --max-ttl 30s a:1")
	if got, want := c.admitCommand("-x", "$(date)"), "redlatch admit --deployment default --max-ttl 30s -- -x '$(date)'"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := c.setCommand(), "redlatch deployment set --deployment default --max-ttl 30s"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A node is shown by the name by which it is known; of what is none, what can be
// shown is.
func TestNodeText(t *testing.T) {
	set := []string{"redis://u:p@h:1/2#a", "redis://127.0.0.1:6379", "redis://u:p/w@h:3"}
	for given, want := range map[string]string{
		"redis://u:p@h:1/2#a":       "a",
		"redis://other/9#a":         "a",
		"a":                         "a",
		"h:1":                       "a",
		"127.0.0.1:6379":            "127.0.0.1:6379",
		" redis://u:p@127.0.0.1 ":   "127.0.0.1:6379",
		"127.0.0.1:6380/3":          "127.0.0.1:6380/3",
		"redis://u:p@127.0.0.1:638": "redis://xxxxx@127.0.0.1:638",
		"redis://u:p%@h":            "redis://…",
		"u:p@127.0.0.1:6379":        "…",
		"b":                         "…",
	} {
		if got := nodeText(given, set); got != want {
			t.Errorf("%s: %s, want %s", given, got, want)
		}
	}
}

// A shell takes the words apart again.
func TestShellWords(t *testing.T) {
	for _, word := range []string{"", "plain", "redis://a:1,redis://b:2", "redis://a?b=c&d=e#f", "a b", "it's", "''", `\`, "$(x)`y`$z", "a\nb", "*", "~", "#", "!", ";|<>(){}[]", "é"} {
		out, err := exec.Command("sh", "-c", `printf '%s\n.' `+shellWords(word, "end")).Output()
		if err != nil || string(out) != word+"\n.end\n." {
			t.Errorf("%q: %s: %q, %v", word, shellWords(word, "end"), out, err)
		}
	}
	if got := shellWords("redlatch", "admit", "127.0.0.1:1"); got != "redlatch admit 127.0.0.1:1" {
		t.Errorf("quotes without need: %s", got)
	}
}

// JSON has no more digits of a duration than there are.
func TestSeconds(t *testing.T) {
	if text, err := json.Marshal(seconds(2397 * time.Millisecond)); string(text) != "2.397" || err != nil {
		t.Errorf("%s, %v", text, err)
	}
}
