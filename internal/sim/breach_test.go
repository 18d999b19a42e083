package sim_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A breach breaks one rule in the code under test. now replaces was, which must
// occur once in file; broken there is the name of the rule that is broken in
// this run, so that one build has them all.
type breach struct {
	rule, file, was, now string
	within               int    // worlds
	weather              string // "" for any
}

var breaches = []breach{
	{
		rule: "validity is judged after the last answer", file: "internal/quorum/engine.go", within: 1000, weather: "torn",
		was: `if !t.held() || now.Reached(k.until) ||`,
		now: `if !t.held() || now.Reached(k.until) && broken != RULE ||`,
	},
	{
		rule: "validity runs from the send of an acquisition", file: "internal/quorum/engine.go", within: 1000, weather: "torn",
		was: "	now := e.clock.Now()\n",
		now: "	now := e.clock.Now()\n	if broken == RULE {\n		k.until = now.Add(k.request.TTL - Drift(k.request.TTL))\n	}\n",
	},
	{
		rule: "validity runs from the send of an extension", file: "internal/quorum/extend.go", within: 6000, weather: "torn",
		was: "	until := start.Add(ttl - Drift(ttl))\n",
		now: "	if broken == RULE {\n		start = e.clock.Now()\n	}\n	until := start.Add(ttl - Drift(ttl))\n",
	},
	{
		rule: "an extension counts before the validity ran out", file: "internal/quorum/extend.go", within: 3000, weather: "torn",
		was: `case e.clock.Now().Reached(k.until):`,
		now: `case e.clock.Now().Reached(k.until) && broken != RULE:`,
	},
	{
		rule: "a quorum is more than half", file: "internal/quorum/tally.go", within: 1000,
		was: `func Majority(n int) int { return n/2 + 1 }`,
		now: "func Majority(n int) int {\n	if broken == RULE {\n		return (n + 1) / 2 - n/3\n	}\n	return n/2 + 1\n}",
	},
	{
		rule: "a grant counts under the token alone", file: "internal/quorum/tally.go", within: 1000, weather: "torn",
		was: "		case node.granted == t.token:\n",
		now: "		case node.granted == t.token, broken == RULE:\n",
	},
	{
		rule: "a failure is undone", file: "internal/quorum/keys.go", within: 1000,
		was: "	k.giveUp()\n",
		now: "	if broken != RULE {\n		k.giveUp()\n	}\n",
	},
	{
		rule: "a release follows the step under way", file: "internal/quorum/release.go", within: 1000,
		was: "			if s.due = s.busy; !s.due {\n",
		now: "			if s.due = s.busy && broken != RULE; !s.due {\n",
	},
	{
		rule: "a deadline has passed as soon as either clock says so", file: "internal/clock/clock.go", within: 1000,
		was: "	return min(deadline.Mono.Sub(i.Mono), deadline.Boot-i.Boot)\n",
		now: "	if broken == RULE {\n		return max(deadline.Mono.Sub(i.Mono), deadline.Boot-i.Boot)\n	}\n	return min(deadline.Mono.Sub(i.Mono), deadline.Boot-i.Boot)\n",
	},
	{
		rule: "a quarantine is longer than the longest TTL", file: "internal/admission/agreement.go", within: 1000,
		was: "	return a.MaxTTL + 2*script.Clamp + vote.LongestAttempt\n",
		now: "	if broken == RULE {\n		return time.Second\n	}\n	return a.MaxTTL + 2*script.Clamp + vote.LongestAttempt\n",
	},
	{
		rule: "what one may have taken over who was woken up is not lost", file: "release.go", within: 4000, weather: "torn",
		was: `if !unheard {`,
		now: `if !unheard || broken == RULE {`,
	},
	{
		rule: "a lock is lost when no quorum is left", file: "internal/quorum/keys.go", within: 1000,
		was: `	return gone > len(k.nodes)-Majority(len(k.nodes))`,
		now: `	return gone > len(k.nodes)-Majority(len(k.nodes)) || gone > 0 && broken == RULE`,
	},
	{
		rule: "what may have been handed over is not lost", file: "internal/quorum/transfer.go", within: 2000, weather: "torn",
		was: `(released.Verdict == vote.NotOurs || released.Verdict == vote.Held) && a.Verdict == vote.Unknown:`,
		now: `(released.Verdict == vote.NotOurs || released.Verdict == vote.Held && broken != RULE) && a.Verdict == vote.Unknown:`,
	},
}

// TestSimBreaches builds the library with its rules broken, one in each run. A
// simulation that does not notice is of no use.
func TestSimBreaches(t *testing.T) {
	if testing.Short() || simWorlds < 1000 {
		t.Skip("builds the library anew, and many worlds")
	}
	binary := buildBroken(t)
	found := regexp.MustCompile(`seed (\d+): ([^:]*)`)
	for _, b := range breaches {
		t.Run(b.rule, func(t *testing.T) {
			run := exec.CommandContext(t.Context(), binary, "-test.run=^TestSim$", "-test.v", "-test.timeout=8m",
				"-sim.fail=1", "-sim.count="+strconv.Itoa(b.within), "-sim.weather="+b.weather)
			run.Env = append(os.Environ(), "REDLATCH_BROKEN="+b.rule)
			out, err := run.CombinedOutput()
			match := found.FindSubmatch(out)
			if err == nil || match == nil {
				t.Fatalf("%d worlds did not notice that it does not hold\n%s", b.within, out)
			}
			t.Logf("%-55s found in world %3s of %3d: %s", b.rule, match[1], b.within, match[2])
		})
	}
}

// brokenTexts returns the files with every rule breakable.
func brokenTexts(t *testing.T, root string) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	for _, b := range breaches {
		text, ok := texts[b.file]
		if !ok {
			source, err := os.ReadFile(filepath.Join(root, b.file))
			if err != nil {
				t.Fatal(err)
			}
			text = string(source)
		}
		if n := strings.Count(text, b.was); n != 1 {
			t.Errorf("%s: %q occurs %d times in %s: the rule has moved, and its breach must follow", b.rule, b.was, n, b.file)
		}
		texts[b.file] = strings.Replace(text, b.was, strings.ReplaceAll(b.now, "RULE", strconv.Quote(b.rule)), 1)
	}
	return texts
}

// What a breach replaces occurs once, so that it breaks what it says.
func TestBreachesFit(t *testing.T) { brokenTexts(t, filepath.Join("..", "..")) }

// buildBroken builds this test with every rule breakable, and returns the file.
func buildBroken(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir, texts := t.TempDir(), brokenTexts(t, root)
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	put := func(name, text string) {
		file := filepath.Join(dir, strings.ReplaceAll(name, string(filepath.Separator), "-"))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(root, name)] = file
	}
	clause := regexp.MustCompile("(?m)^package .*$")
	for name, text := range texts {
		put(name, text)
		folder := filepath.Dir(name)
		put(filepath.Join(folder, "broken.go"),
			clause.FindString(text)+"\n\nimport \"os\"\n\nvar broken = os.Getenv(\"REDLATCH_BROKEN\")\n")
	}
	config, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	overlayFile, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "broken.test")
	if err := os.WriteFile(overlayFile, config, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay="+overlayFile, "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}
