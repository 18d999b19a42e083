package sim_test

import (
	"fmt"
	"testing"
)

// breachesElsewhere break rules of the readers' wait queue, of leading, of Clusters and of a change of the
// deployment, for which there are worlds of their own: the test that is to fail is where.
var breachesElsewhere = []breach{
	{
		rule: "a reader hears the arbiter", where: "TestSimReadersAreFair", file: "internal/quorum/shared.go",
		was: `for t.held() && k.unheard(t) {`,
		now: `for t.held() && k.unheard(t) && broken != RULE {`,
	},
	{
		rule: "a writer hands nothing on where a reader waits", where: "TestSimReadersAreFair", file: "internal/waitqueue/local.go",
		was: `|| q.hasReaders(l.key) {`,
		now: `|| q.hasReaders(l.key) && broken != RULE {`,
	},
	{
		rule: "a reader does not pass a writer who waits", where: "TestSimReadersAreFair", file: "internal/script/script.go",
		was: scriptNew, now: scriptWithout("  if behind(queue, waiter) then\n", "  if false then\n"),
	},
	{
		rule: "readers who wait are before the next writer", where: "TestSimReadersAreFair", file: "internal/script/script.go",
		was: scriptNew, now: scriptWithout("  if holder and not marked(holder) then\n    return 1\n", "  if false then\n    return 1\n"),
	},
	{
		rule: "readers who wait are woken up together", where: "TestSimReadersAreFair", file: "internal/script/script.go",
		was: scriptNew, now: scriptWithout("    if not reads(reader) then\n", "    if woken or not reads(reader) then\n"),
	},
	{
		rule: "Close waits for the work of a lead", where: "TestSimLeading", file: "close.go",
		was: "			lock.awaitWork()\n",
		now: "			if broken != RULE {\n				lock.awaitWork()\n			}\n",
	},
	{
		rule: "a lead whose ctx is done is kept until its work has returned", where: "TestSimLeading", file: "campaign.go",
		was: "	return false, fn(lock.Context())\n",
		now: "	if broken == RULE {\n		defer context.AfterFunc(ctx, func() { lock.Unlock(context.WithoutCancel(ctx)) })()\n	}\n	return false, fn(lock.Context())\n",
	},
	{
		rule: "only a majority of masters says who has a slot", where: "TestSimCluster", file: "internal/node/view.go",
		was: "		case known:\n",
		now: "		case known, broken == RULE:\n",
	},
	{
		rule: "a slot votes when it was known for long", where: "TestSimCluster", file: "internal/admission/slots.go",
		was: "	case known && since <= e.Now && left <= 0, e.Shard.Brought:\n",
		now: "	case known && since <= e.Now && (left <= 0 || broken == RULE), e.Shard.Brought:\n",
	},
	{
		rule: "a quarantine that begins anew is no shorter", where: "TestSimChanges", file: "internal/admission/record.go",
		was: "	if b, ok := ParseNote(before); ok && b.possible() {\n",
		now: "	if b, ok := ParseNote(before); ok && b.possible() && broken != RULE {\n",
	},
	{
		rule: "a restart ends no quarantine", where: "TestSimChanges", file: "internal/admission/decide.go",
		was: "	case noted && note.possible() && note.left(e.Server, e.Now) > e.Uptime && (",
		now: "	case broken != RULE && noted && note.possible() && note.left(e.Server, e.Now) > e.Uptime && (",
	},
}

// scriptNew is where each script gets its text, and scriptWithout the same with a part of it replaced.
const scriptNew = "func New(text string) Script {\n"

func scriptWithout(was, now string) string {
	return fmt.Sprintf("%s	if broken == RULE {\n		text = strings.ReplaceAll(text, %q, %q)\n	}\n", scriptNew, was, now)
}

// TestSimBreachesElsewhere builds the library with rules broken that other worlds than TestSim's are to find.
func TestSimBreachesElsewhere(t *testing.T) {
	eachBreach(t, breachesElsewhere, func(t *testing.T, b breach, binary, id string) {
		b.within = simWorlds // or as many as the test has
		b.look(t, binary, id)
	})
}
