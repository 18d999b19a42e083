package sim_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	// also are changes elsewhere; mutation, if not "", is one of package sim that goes with them.
	also     []change
	mutation string
	// anywhere: goroutines stand still at any statement, too.
	anywhere bool
	// permits: most calls are for permits.
	permits bool
	// where is the test that finds it, "" where it is TestSim.
	where string
	// survives is why no world can show it, "" where one does.
	survives string
}

// change is a part of a breach.
type change struct{ file, was, now string }

// changes are all of a breach.
func (b *breach) changes() []change { return append([]change{{b.file, b.was, b.now}}, b.also...) }

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
		was: "	until := x.start.Add(x.request.TTL - Drift(x.request.TTL))\n",
		now: "	if broken == RULE {\n		x.start = k.engine.clock.Now()\n	}\n	until := x.start.Add(x.request.TTL - Drift(x.request.TTL))\n",
	},
	{
		rule: "an extension counts before the validity ran out", file: "internal/quorum/extend.go", within: 3000, weather: "torn",
		was: `case k.engine.clock.Now().Reached(k.until):`,
		now: `case k.engine.clock.Now().Reached(k.until) && broken != RULE:`,
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
		rule: "a failure is undone", file: "internal/quorum/engine.go", within: 1000,
		was: "			k.giveUp()\n",
		now: "			if broken != RULE {\n				k.giveUp()\n			}\n",
	},
	{
		rule: "what was not replaced is released", file: "internal/quorum/take_over.go", within: 1000, weather: "sets",
		was: "				e.workers.run(func() { l.releaseStep(i) })\n",
		now: "				if broken != RULE {\n					e.workers.run(func() { l.releaseStep(i) })\n				}\n",
	},
	{
		rule: "a release follows the step under way", file: "internal/quorum/release.go", within: 1000,
		was: "			if s.due = s.busy && !s.together; !s.due {\n",
		now: "			if s.due = s.busy && !s.together && broken != RULE; !s.due {\n",
	},
	{
		rule: "a deadline has passed as soon as either clock says so", file: "internal/clock/clock.go", within: 1000,
		was: "	return min(deadline.Mono.Sub(i.Mono), deadline.Boot-i.Boot)\n",
		now: "	if broken == RULE {\n		return max(deadline.Mono.Sub(i.Mono), deadline.Boot-i.Boot)\n	}\n	return min(deadline.Mono.Sub(i.Mono), deadline.Boot-i.Boot)\n",
	},
	{
		rule: "a quarantine is longer than the longest TTL", file: "internal/admission/agreement.go", within: 1000,
		was: "	return longest + 2*script.Clamp + vote.LongestAttempt\n",
		now: "	if broken == RULE {\n		return time.Second\n	}\n	return longest + 2*script.Clamp + vote.LongestAttempt\n",
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
		rule: "what may have been transferred is not lost", file: "internal/quorum/transfer.go", within: 2000, weather: "torn",
		was: `(released.Verdict == vote.NotOurs || released.Verdict == vote.Held) && a.Verdict == vote.Unknown:`,
		now: `(released.Verdict == vote.NotOurs || released.Verdict == vote.Held && broken != RULE) && a.Verdict == vote.Unknown:`,
	},
	{
		rule: "answers to an earlier round do not count", file: "internal/quorum/extend.go", within: 3000, weather: "torn",
		was: "	if !x.keys.enter(i, x.round.shared) {\n",
		now: "	if !x.keys.enter(i, x.round.shared) {\n		if broken == RULE && x.keys.Answer(i).Verdict == vote.Granted {\n			x.yes++\n		}\n",
	},
	{
		rule: "a repair waits for the quorum", file: "internal/quorum/extend.go", within: 30, weather: "torn",
		was:      "	due := k.lastExtended == round && ",
		now:      "	due := (k.lastExtended == round || broken == RULE) && ",
		survives: "a node must have lost the key, and the extension that gives it back must get no quorum: that was found in one of thousands of worlds",
	},
	{
		rule: "the voting script is not sent by its text", file: "internal/node/node.go", within: 30, weather: "servers",
		was:      "			reply, err = n.conn.EvalSHA(ctx, n.voting.SHA, s.keys, s.args)\n",
		now:      "			if reply, err = n.conn.EvalSHA(ctx, n.voting.SHA, s.keys, s.args); isNoScript(err) && broken == RULE {\n				reply, err = eval(ctx, n.conn, n.voting.Text, s.keys, s.args)\n			}\n",
		survives: "the admission key names the server, so that the text finds none of this one: it is the first of two guards",
	},
	{
		rule: "neither by its text nor by its name", file: "internal/node/node.go", within: 1000, weather: "roles", mutation: "admission of another server",
		was: "			reply, err = n.conn.EvalSHA(ctx, n.voting.SHA, s.keys, s.args)\n",
		now: "			if reply, err = n.conn.EvalSHA(ctx, n.voting.SHA, s.keys, s.args); isNoScript(err) && broken == RULE {\n				reply, err = eval(ctx, n.conn, n.voting.Text, s.keys, s.args)\n			}\n",
	},
	{
		rule: "a client that differs votes nowhere", file: "internal/admission/decide.go", within: 1000, weather: "outside",
		was: "	if d, ok := decideAgreement(a, &e); ok {\n",
		now: "	if d, ok := decideAgreement(a, &e); ok && broken != RULE {\n",
	},
	{
		rule: "a client of another MaxTTL votes nowhere", file: "internal/admission/decide.go", within: 1000, weather: "outside",
		was: "		same := recorded.ID() == a.ID()\n",
		now: "		same := recorded.ID() == a.ID()\n		if broken == RULE && recorded.NoQuarantine == a.NoQuarantine {\n			same = true\n		}\n",
	},
	{
		rule: "a client without quarantine votes nowhere", file: "internal/admission/decide.go", within: 1000, weather: "outside",
		was: "		recorded := e.Record.Agreement(a.Deployment)\n",
		now: "		recorded := e.Record.Agreement(a.Deployment)\n		if broken == RULE {\n			recorded.NoQuarantine = a.NoQuarantine\n		}\n",
	},
	{
		rule: "an answer comes by the connection that was inspected", file: "internal/node/node.go", within: 30, weather: "servers",
		was:      "	if err == nil && seen.connection != n.conn.Connections() {\n",
		now:      "	if err == nil && seen.connection != n.conn.Connections() && broken != RULE {\n",
		survives: "the step says which run and replication id it expects, so that another server refuses it: it is the second of two guards",
	},
	{
		rule: "a waiter looks when the key can have expired", file: "internal/waitqueue/ticket.go", within: 30, weather: "processes",
		was:      "	if p.Reserved() || p.Ahead == 0 && p.Left >= 0 {\n",
		now:      "	if (p.Reserved() || p.Ahead == 0 && p.Left >= 0) && broken != RULE {\n",
		survives: "a waiter asks at its heartbeat as well, a second later, and the judge allows for little less: TestExpiry finds it",
	},
	{
		rule: "an attempt does not last for long", file: "internal/quorum/engine.go", within: 1000, weather: "replaced",
		was: "|| now.Reached(start.Add(vote.LongestAttempt)) {\n",
		now: "|| now.Reached(start.Add(vote.LongestAttempt)) && broken != RULE {\n",
	},
	{
		rule: "a holder that looks knows", file: "lock.go", within: 1000,
		was: "	if held && l.client.clock.Now().Reached(l.lostAt(until)) {\n",
		now: "	if held && broken != RULE && l.client.clock.Now().Reached(l.lostAt(until)) {\n",
	},
	{
		rule: "a holder that does not look is told", file: "renewal.go", within: 1000,
		was: "	if held, _ := l.lease.Held(); !held || now.Reached(l.lostAt(l.lease.Until())) {\n		go l.checkEnd()\n",
		now: "	if held, _ := l.lease.Held(); !held || now.Reached(l.lostAt(l.lease.Until())) {\n		if !held || broken != RULE {\n			go l.checkEnd()\n		}\n",
	},
	{
		rule: "a holder whose machine has slept is told", file: "renewal.go", within: 1000, weather: "processes",
		was: "	if slept > longestNoSleep {\n",
		now: "	if slept > longestNoSleep && broken != RULE {\n",
	},
	{
		rule: "a counter is bounded", file: "internal/node/answer.go", within: 1000, weather: "outside", mutation: "counter not bounded",
		was: "func isCounter(token uint64) bool { return 0 < token && token <= script.MaxCounter }\n",
		now: "func isCounter(token uint64) bool { return 0 < token && token <= script.MaxCounter || broken == RULE }\n",
	},
	{
		rule: "a node's word is its operator's, not its settings'", file: "internal/admission/decide.go", within: 1000, weather: "roles",
		was:  "	return a.Durable && e.Record != nil && ",
		now:  "	return (a.Durable || broken == RULE) && e.Record != nil && ",
		also: []change{{"internal/node/evidence.go", "	if a.Durable {\n", "	if a.Durable || broken == RULE {\n"}},
	},
	{
		rule: "who gives up a place does not give up the lock", file: "internal/waitqueue/ticket.go", within: 1000, weather: "silent",
		was:      "	t.forget()\n	t.from = \"\"\n",
		now:      "	t.forget()\n	t.from = \"\"\n	if broken == RULE {\n		t.from = t.attempt\n	}\n",
		anywhere: true,
	},
	{
		rule: "who waits for another name has no turn", file: "internal/waitqueue/contend.go", within: 1000, weather: "sets",
		was: "	lease, remote, err := q.contend(ctx, c, l)\n",
		now: "	lease, remote, err := q.contend(ctx, c, l)\n	served = err == ErrElsewhere && broken == RULE // it keeps the turn\n",
	},
	{
		rule: "votes are for one slot", file: "internal/node/step.go", within: 1000, weather: "permits",
		was: "	a := granted(reply, ofAnotherKind(err))\n",
		now: "	a := granted(reply, ofAnotherKind(err))\n	if broken == RULE && r.Slots > 0 && a.Verdict == vote.Held {\n		r.Key, _, _, _ = CutSlot(r.Key)\n		return n.Choose(ctx, r)\n	}\n",
	},
	{
		rule: "validity runs from before a slot was chosen", file: "internal/quorum/accept.go", within: 1000, weather: "alone", permits: true,
		was: "	k := newKeys(e, request, e.clock.Now())",
		now: "	if broken == RULE {\n		start = e.clock.Now()\n	}\n	k := newKeys(e, request, e.clock.Now())",
	},
	{
		rule: "a slot that may have been granted is released", file: "internal/node/slot.go", within: 1000, weather: "permits",
		was: "	case a.MayHold():\n",
		now: "	case a.MayHold() && broken != RULE:\n",
	},
	{
		rule: "the vote in hand is undone with the others", file: "internal/quorum/accept.go", within: 1000, weather: "permits",
		was: "given, given.Counter, ours\n",
		now: "given, given.Counter, ours\n	if broken == RULE {\n		k.nodes[by].key = none\n	}\n",
	},
	{
		rule: "the next node is asked for a slot under another id", file: "permit.go", within: 1000, weather: "permits",
		was: "		request.ID = c.client.newHolderID(c.client.clock.Wall(), c.settings.label)\n",
		now: "		if broken != RULE {\n			request.ID = c.client.newHolderID(c.client.clock.Wall(), c.settings.label)\n		}\n",
	},
}

// TestSimBreaches builds the library with its rules broken, one in each run. A
// simulation that does not notice is of no use.
func TestSimBreaches(t *testing.T) {
	eachBreach(t, breaches, func(t *testing.T, b breach, binary, id string) { b.look(t, binary, id) })
}

// eachBreach builds the library with each of the rules broken, several in one binary, and runs look for each.
func eachBreach(t *testing.T, all []breach, look func(t *testing.T, b breach, binary, id string)) {
	t.Helper()
	if testing.Short() || simWorlds < 1000 {
		t.Skip("builds the library anew, and many worlds")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	rules := rulesOf(t)
	for i, l := range layers(t, root, all) {
		binary := l.build(t, root)
		t.Run(fmt.Sprint("layer ", i), func(t *testing.T) {
			for _, b := range l.breaches {
				t.Run(b.rule, func(t *testing.T) {
					t.Parallel()
					look(t, b, binary, rules[b.rule])
				})
			}
		})
	}
}

// look runs worlds in which the rule of that id is broken.
func (b *breach) look(t *testing.T, binary, id string) {
	h := hunt{
		binary: binary, where: b.where, mutation: cmp.Or(b.mutation, "none"), weather: b.weather, permits: b.permits, anywhere: b.anywhere,
		name: b.rule, env: []string{"REDLATCH_BROKEN=" + b.rule}, within: b.within,
	}
	world, verdict, out, err := h.run(t)
	switch {
	case b.survives != "" && err == nil:
		t.Logf("%-28s %-58s survives %4d worlds: %s", id, b.rule, b.within, b.survives)
	case err == nil || verdict == "":
		t.Errorf("%d worlds did not notice that it does not hold: %v\n%s", b.within, err, out)
	case b.mutation != "" && strings.HasPrefix(verdict, "nothing is refused"):
		t.Errorf("the mutation was noticed without the breach: %s", verdict) // the library refuses what it lets through
	default:
		t.Logf("%-28s %-58s found in world %4d of %s: %s", id, b.rule, world, cmp.Or(b.where, "TestSim"), verdict)
	}
}

// layer is files in which rules can be broken, and which they are: those that change one place in
// several ways are in several layers.
type layer struct {
	texts    map[string]string
	anywhere bool
	breaches []breach
}

// layers parts the breaches, with the files as they are under root.
func layers(t *testing.T, root string, breaches []breach) (all []*layer) {
	t.Helper()
	for _, b := range breaches {
		fits := func(l *layer) bool { return l.anywhere == b.anywhere && l.add(t, root, b) }
		if slices.ContainsFunc(all, fits) {
			continue
		}
		all = append(all, &layer{texts: make(map[string]string), anywhere: b.anywhere})
		if !fits(all[len(all)-1]) {
			t.Errorf("%s: what it changes does not occur once in %s: the rule has moved, and its breach must follow", b.rule, b.file)
		}
	}
	return all
}

// add makes the breach's rule breakable, if all that it changes occurs once.
func (l *layer) add(t *testing.T, root string, b breach) bool {
	t.Helper()
	texts := maps.Clone(l.texts)
	for _, c := range b.changes() {
		text, ok := texts[c.file]
		if !ok {
			source, err := os.ReadFile(filepath.Join(root, c.file))
			if err != nil {
				t.Fatal(err)
			}
			text = string(source)
		}
		if strings.Count(text, c.was) != 1 {
			return false
		}
		texts[c.file] = strings.Replace(text, c.was, strings.ReplaceAll(c.now, "RULE", strconv.Quote(b.rule)), 1)
	}
	l.texts, l.breaches = texts, append(l.breaches, b)
	return true
}

// rulesOf returns the rule of each mutation and breach, by the name that docs/rules.md gives it.
func rulesOf(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "rules.md"))
	if err != nil {
		t.Fatal(err)
	}
	rules := make(map[string]string)
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| `") || len(cells) != 8 {
			continue
		}
		for name := range strings.SplitSeq(strings.Trim(cells[7], " |\n"), "<br>") {
			rules[strings.Trim(name, "`\"")] = strings.Trim(cells[0], "| `")
		}
	}
	return rules
}

// What a breach replaces occurs once, so that it breaks what it says.
func TestBreachesFit(t *testing.T) {
	layers(t, filepath.Join("..", ".."), breaches)
	layers(t, filepath.Join("..", ".."), breachesElsewhere)
}

// packageClause is where a file says which package it is of.
var packageClause = regexp.MustCompile("(?m)^package .*$")

// build builds this test with the layer's rules breakable, and returns the file.
func (l *layer) build(t *testing.T, root string) string {
	t.Helper()
	texts := maps.Clone(l.texts)
	for name, text := range l.texts {
		texts[filepath.Join(filepath.Dir(name), "broken.go")] = packageClause.FindString(text) + "\n\nimport \"os\"\n\nvar broken = os.Getenv(\"REDLATCH_BROKEN\")\n"
	}
	if l.anywhere {
		texts = stallTexts(t, root, texts)
	}
	return buildOver(t, t.TempDir(), root, texts)
}
