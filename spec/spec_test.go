package spec

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// size picks what is run: "" or "large" or "story".
var size = os.Getenv("REDLATCH_SPEC")

// beside has a search run beside others, unless it may need the memory for itself.
func beside(t *testing.T) {
	if size != "large" {
		t.Parallel()
	}
}

// TestModel looks at every state of the models as they are: every property
// holds in each of them. And every statement of the model must have been
// reached somewhere, where the size allows it: a rule so strict that nobody
// ever holds a lock, or is extended, would keep all promises too.
func TestModel(t *testing.T) {
	needSpin(t)
	for _, tt := range []struct {
		name    string
		model   string
		defines []string
		cover   bool // every statement is reached
		slow    bool // of the others, those that take seconds
		large   bool // left out but for REDLATCH_SPEC=large
		memory  int  // MB
		depth   int
	}{
		{name: "lock 3 nodes 2 clients", model: "lock", cover: true},
		{name: "lock 1 node", model: "lock", defines: []string{"N=1"}},
		{name: "lock 4 nodes", model: "lock", defines: []string{"N=4", "SORTED"}},
		{name: "lock 5 nodes", model: "lock", defines: []string{"N=5", "SORTED"}, slow: true},
		{name: "lock 3 clients", model: "lock", defines: []string{"CLIENTS=3", "SORTED"}},
		{name: "lock both clocks wrong", model: "lock", defines: []string{"TTL=4", "CLIENT_SLOW=1", "SORTED"}},
		{name: "lock shortest quarantine", model: "lock", defines: []string{"QUARANTINE=3"}},
		{name: "admission", model: "admission", cover: true},
		{name: "admission of clients alike", model: "admission", defines: []string{"ALIKE"}},
		{name: "token 3 nodes 2 attempts to 3", model: "token", defines: []string{"MAX=3"}, cover: true},
		{name: "token 3 nodes 2 attempts to 4", model: "token", defines: []string{"SORTED"}},
		{name: "token 3 nodes 2 attempts to 6 in blocks", model: "token", defines: []string{"MAX=6", "BLOCK=2", "SORTED"}},
		{name: "names", model: "names", cover: true},
		{name: "names on 1 node", model: "names", defines: []string{"N=1", "CLIENTS=3"}},
		{name: "names one by one", model: "names_singly", cover: true},
		{name: "names one by one, who waits for whom", model: "names_singly", defines: []string{"N=1", "CLIENTS=3", "CIRCLES"}},
		{name: "names, tokens", model: "names_token", defines: []string{"SORTED"}, slow: true},
		{name: "names, tokens of one and of both", model: "names_token", defines: []string{"ONE_NAME", "SORTED"}, slow: true},

		{name: "shared", model: "shared", cover: true},
		{name: "shared, 2 readers", model: "shared", defines: []string{"READERS=2", "TTL=2", "SORTED"}, slow: true},
		{name: "shared, 2 writers", model: "shared", defines: []string{"WRITERS=2", "TTL=2", "SORTED"}},
		{name: "shared, 5 nodes", model: "shared", defines: []string{"N=5", "TTL=2", "SORTED"}},
		{name: "shared, what is left of a reader", model: "shared", defines: []string{"MORTAL", "READERS=2", "TTL=2", "SORTED"}},
		{name: "shared, tokens", model: "shared_token", defines: []string{"SORTED"}},
		{name: "shared, tokens of 2 readers", model: "shared_token", defines: []string{"READERS=2", "MAX=2", "SORTED"}, cover: true, slow: true},
		{name: "shared, tokens of 2 writers", model: "shared_token", defines: []string{"WRITERS=2", "MAX=2", "SORTED"}},
		{name: "shared, tokens are confirmed", model: "shared_token", defines: []string{"WHOLE", "SORTED"}},
		{name: "shared, queue", model: "shared_queue", defines: []string{"WRITERS=3"}, cover: true},

		{name: "permits of 2 clients", model: "permits", defines: []string{"CLIENTS=2"}, cover: true},
		{name: "permits on 1 node", model: "permits", defines: []string{"N=1"}},

		{name: "permits", model: "permits", large: true, memory: 8192, depth: 10_000_000},
		{name: "names of 3 clients", model: "names", defines: []string{"CLIENTS=3"}, large: true, memory: 8192, depth: 10_000_000},
		{name: "names, tokens, not sorted", model: "names_token", cover: true, large: true, memory: 8192, depth: 10_000_000},
		{name: "names, tokens to 4", model: "names_token", defines: []string{"MAX=4", "SORTED"}, large: true, memory: 8192, depth: 10_000_000},
		{name: "admission 2 events", model: "admission", defines: []string{"EVENTS=2"}, large: true, memory: 8192, depth: 10_000_000},
		{name: "admission of clients alike 2 events", model: "admission", defines: []string{"EVENTS=2", "ALIKE"}, large: true, memory: 8192, depth: 10_000_000},
		{name: "lock 5 nodes 3 clients", model: "lock", defines: []string{"N=5", "CLIENTS=3", "SORTED"}, large: true, memory: 8192, depth: 10_000_000},
		{name: "lock 5 nodes both clocks wrong", model: "lock", defines: []string{"N=5", "TTL=4", "CLIENT_SLOW=1", "SORTED"}, large: true, memory: 8192, depth: 10_000_000},
		{name: "lock 3 clients both clocks wrong", model: "lock", defines: []string{"CLIENTS=3", "TTL=5", "CLIENT_SLOW=1", "SORTED"}, large: true, memory: 8192, depth: 10_000_000},
		{name: "token 3 nodes 2 attempts to 4 not sorted", model: "token", cover: true, large: true, memory: 8192, depth: 10_000_000},
		{name: "token 3 nodes 2 attempts to 6", model: "token", defines: []string{"MAX=6", "SORTED"}, large: true, memory: 8192, depth: 10_000_000},
		{name: "token 3 nodes 3 attempts", model: "token", defines: []string{"ATTEMPTS=3", "SORTED"}, large: true, memory: 8192, depth: 10_000_000},
		{name: "token 5 nodes 2 attempts to 3", model: "token", defines: []string{"N=5", "MAX=3", "SORTED"}, large: true, memory: 8192, depth: 10_000_000},
		{name: "shared, TTLs of 3 and 2", model: "shared", defines: []string{"READERS=2", "TTL_OF_LAST=2", "SORTED"}, large: true, memory: 8192, depth: 10_000_000},
		{name: "shared, 2 readers, not sorted", model: "shared", defines: []string{"READERS=2", "TTL=2"}, cover: true, large: true, memory: 8192, depth: 10_000_000},
		{name: "shared, 2 writers, TTL 3", model: "shared", defines: []string{"WRITERS=2", "SORTED"}, large: true, memory: 8192, depth: 10_000_000},
		{name: "shared, 5 nodes, TTL 3", model: "shared", defines: []string{"N=5", "SORTED"}, large: true, memory: 8192, depth: 10_000_000},
		{name: "shared, tokens to 4", model: "shared_token", defines: []string{"MAX=4", "SORTED"}, large: true, memory: 8192, depth: 10_000_000},
		{name: "shared, tokens of 2 writers to 3", model: "shared_token", defines: []string{"WRITERS=2", "SORTED"}, large: true, memory: 8192, depth: 10_000_000},
		{name: "shared, tokens of 2 readers to 3", model: "shared_token", defines: []string{"READERS=2", "SORTED"}, large: true, memory: 8192, depth: 10_000_000},
		{name: "shared, tokens of 2 readers are confirmed", model: "shared_token", defines: []string{"WHOLE", "READERS=2", "MAX=2", "SORTED"}, large: true, memory: 8192, depth: 10_000_000},
		{name: "shared, queue of 3 and 3", model: "shared_queue", defines: []string{"WRITERS=3", "READERS=3"}, large: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			beside(t)
			if tt.large && size != "large" {
				t.Skip("only with REDLATCH_SPEC=large")
			}
			s := search{model: tt.model, defines: tt.defines, memory: tt.memory, depth: tt.depth, slow: tt.slow || tt.large}
			if tt.cover {
				s.defines = append(slices.Clone(tt.defines), "COVER")
			}
			f := s.run(t)
			t.Log(f)
			switch {
			case f.errors > 0:
				s.defines = tt.defines
				t.Fatalf("%s does not hold:\n%s", f.violated, shortest(t, s))
			case f.cut != "":
				t.Fatalf("not every state was looked at: %s", f.cut)
			case tt.cover && len(f.unreached) > 0:
				t.Fatalf("statements that are never reached:\n%s", strings.Join(f.unreached, "\n"))
			}
		})
	}
}

// TestMutations turns off one rule of the design at a time, and wants the
// property broken that the rule is there for.
func TestMutations(t *testing.T) {
	needSpin(t)
	for _, tt := range []struct {
		name    string
		model   string
		defines []string
		breaks  string
	}{
		// A node that restarts without its keys votes again at once.
		{"no quarantine", "lock", []string{"NO_QUARANTINE"}, "exclusive"},
		// It is admitted one tick before the last validity it may have voted for is over.
		{"quarantine too short", "lock", []string{"QUARANTINE=2"}, "exclusive"},
		// It refuses to acquire, but runs a holder's extension and repair.
		{"quarantine for acquire only", "lock", []string{"QUARANTINE_ACQUIRE_ONLY"}, "exclusive"},
		// The client relies on the whole TTL, though a node's clock may run ahead of its own.
		{"no drift", "lock", []string{"NO_DRIFT"}, "exclusive"},
		// A holder goes on until it releases.
		{"validity not checked", "lock", []string{"VALIDITY_UNCHECKED"}, "exclusive"},
		// A quorum has granted, but it took the whole validity.
		{"won after validity", "lock", []string{"LATE_QUORUM"}, "exclusive"},
		// The nodes out of reach are taken off N.
		{"quorum of the reachable", "lock", []string{"QUORUM_OF_REACHABLE"}, "exclusive"},
		// Two of four.
		{"half is enough", "lock", []string{"N=4", "HALF_IS_ENOUGH"}, "exclusive"},
		// A late release deletes whatever it finds.
		{"release without compare", "lock", []string{"RELEASE_WITHOUT_COMPARE"}, "exclusive"},
		// A late release of one try deletes the key of the next.
		{"one id for all tries", "lock", []string{"ONE_ID"}, "exclusive"},
		// A quorum's yes is counted though validity had run out by then.
		{"extension counted after lapse", "lock", []string{"EXTEND_AFTER_LAPSE"}, "lost_is_final"},
		// And extending makes a key again that is gone: another has held in between.
		{"extension after lapse re-creates", "lock", []string{"EXTEND_AFTER_LAPSE", "EXTEND_RECREATES", "PROPERTY=unbroken"}, "unbroken"},
		// Validity runs from the answer that completed the quorum.
		{"extension counted from the answer", "lock", []string{"EXTENSION_FROM_ANSWER"}, "exclusive"},
		// Answers to an earlier round complete the quorum of a later one.
		{"answers of two rounds mixed", "lock", []string{"MIX_ROUNDS"}, "exclusive"},

		// A server that restarts votes at once.
		{"uptime does not count", "admission", []string{"NO_QUARANTINE", "ALIKE"}, "exclusive"},
		// The quarantine is shorter than the longest lock.
		{"quarantine shorter than the TTL", "admission", []string{"QUARANTINE_SHORT"}, "exclusive"},
		// One that begins anew is as long as its client's settings have it, though more was left.
		{"quarantine shortened", "admission", []string{"QUARANTINE_SHORTENED"}, "exclusive"},
		// A change of the deployment waits for the new settings' locks alone.
		{"change waits for the new", "admission", []string{"CHANGE_WAITS_FOR_THE_NEW"}, "exclusive"},
		// Who looks at the node does not see that it is in quarantine.
		{"quarantine not read", "admission", []string{"NOTE_UNSEEN"}, "exclusive"},
		// Clients admit and vote whatever the deployment's settings are.
		{"any agreement", "admission", []string{"ANY_AGREEMENT"}, "exclusive"},
		// A client trusts the admission of clients with other settings.
		{"agreement not compared", "admission", []string{"AGREEMENT_UNCOMPARED"}, "exclusive"},
		// Where the node has no record, the client's own word counts and not the other nodes'.
		{"own word", "admission", []string{"OWN_WORD"}, "exclusive"},
		// An admission is trusted wherever it came from.
		{"admission not compared", "admission", []string{"VOTE_UNCOMPARED"}, "exclusive"},
		{"server not compared", "admission", []string{"SERVER_UNCOMPARED"}, "exclusive"},
		// It is compared with what the client has examined, not with what the server is now.
		{"replication id not asked for", "admission", []string{"REPLICATION_ID_UNCOMPARED"}, "exclusive"},
		// A record of this process is enough, though it was a replica meanwhile.
		{"known by its run", "admission", []string{"KNOWN_BY_RUN"}, "exclusive"},
		// A server that was promoted is taken for one that has been up for long.
		{"promotion not seen", "admission", []string{"PROMOTION_UNSEEN", "ALIKE"}, "exclusive"},
		// And so is one whose keys were deleted.
		{"deletion not seen", "admission", []string{"DATA_LOSS_UNSEEN", "ALIKE"}, "exclusive"},
		// The server has changed between the look and the admission.
		{"admitted without a second look", "admission", []string{"ADMIT_UNCOMPARED"}, "exclusive"},

		// The largest answer is the token, and a quorum of grants is enough.
		{"write-back off", "token", []string{"NO_WRITE_BACK"}, "distinct"},
		// The later holder's token is not larger than that of one who held before it began.
		{"write-back off, order", "token", []string{"NO_WRITE_BACK", "PROPERTY=ordered"}, "ordered"},
		// Nor than that of one who held before, while its own keys are all there.
		{"write-back off, order while stored", "token", []string{"NO_WRITE_BACK", "PROPERTY=ordered_while_stored"}, "ordered_while_stored"},
		// A node counts that granted under more than the token.
		{"larger answers counted", "token", []string{"COUNT_LARGER"}, "distinct"},
		// The later holder's token is not larger than that of one who held before it began.
		{"larger answers counted, order", "token", []string{"COUNT_LARGER", "PROPERTY=ordered"}, "ordered"},
		// The token is stored at any node, granted or not.
		{"write-back unguarded", "token", []string{"WRITE_BACK_UNGUARDED"}, "distinct"},
		// A grant executed twice gives the key back after another came and went.
		{"write-back guarded by id only", "token", []string{"WRITE_BACK_BY_ID_ONLY"}, "distinct"},
		// The client's time is the answer where the counter has just that value.
		{"grant does not raise", "token", []string{"GRANT_NOT_RAISING"}, "distinct"},
		// Of a block of tokens only the last is past the counter.
		{"block not raised", "token", []string{"BLOCK=2", "BLOCK_NOT_RAISED"}, "distinct"},
		// The next try finds its own id, and with it the token of the last.
		{"one id for all tries, tokens", "token", []string{"ONE_ID"}, "distinct"},
		// A key made again where it was lost counts towards the quorum.
		{"repair before the quorum", "token", []string{"REPAIR_BEFORE_QUORUM"}, "distinct"},

		// A node grants of several names what is free, and that is a yes.
		{"several names granted in part", "names", []string{"HALF_GRANTED", "PROPERTY=whole"}, "whole"},
		// Then two hold one name.
		{"several names granted in part, two holders", "names", []string{"HALF_GRANTED", "PROPERTY=exclusive"}, "exclusive"},
		// Who takes its names one by one takes the second from another who has it.
		{"names one by one, replacing any", "names_singly", []string{"REPLACE_ANY"}, "exclusive"},
		// What it has of each name may end before it has the last.
		{"names one by one, without an attempt for all", "names_singly", []string{"NO_ATTEMPT", "PROPERTY=exclusive"}, "exclusive"},
		// Each has a name that the next waits for.
		{"names one by one, in any order", "names_singly", []string{"N=1", "CLIENTS=3", "CIRCLES", "UNSORTED"}, "moves"},
		// The counter of each name goes up by itself, and the largest is the token.
		{"each name its own counter", "names_token", []string{"EACH_OWN"}, "distinct"},
		// All of them go to a number that is no larger than each was, as when one attempt replaces those of others.
		{"several names under a counter as it was", "names_token", []string{"NOT_ABOVE"}, "distinct"},
		// A node stores the token though one of the names has changed hands since.
		{"several names confirmed in part", "names_token", []string{"CONFIRM_SOME", "ONE_NAME"}, "distinct"},

		// A writer is granted what readers have.
		{"writer ignores readers", "shared", []string{"WRITER_IGNORES_READERS"}, "exclusive"},
		// One node's word is enough to read.
		{"one node to read", "shared", []string{"READ_ONE"}, "exclusive"},
		// A node that restarts without its readers votes again at once.
		{"no quarantine, readers", "shared", []string{"NO_QUARANTINE"}, "exclusive"},
		// A reader relies on the whole TTL.
		{"no drift, readers", "shared", []string{"NO_DRIFT"}, "exclusive"},
		// A reader with a short TTL ends what one with a longer TTL has.
		{"marker of the last who came", "shared", []string{"MARKER_OWN_TTL", "READERS=2", "TTL_OF_LAST=2", "PROPERTY=exclusive"}, "exclusive"},
		// A release that is executed twice takes another reader's place.
		{"readers counted", "shared", []string{"COUNTED", "READERS=2", "TTL=2"}, "exclusive"},
		// Of a reader that died something is left as long as others renew.
		{"one TTL for all readers", "shared", []string{"SHARED_TTL", "MORTAL", "READERS=2", "TTL=2"}, "gone"},
		// The first reader has the token of the writer before it.
		{"readers' token not raised", "shared_token", []string{"OPEN_NOT_RAISING"}, "distinct"},
		// A reader whose time is over is repaired after a writer, and another joins it and has that writer's token.
		{"repair of a reader not raising", "shared_token", []string{"REPAIR_NOT_RAISING", "READERS=2", "MAX=2"}, "distinct"},
		// A grant executed twice makes the entry anew after a writer came and went.
		{"readers confirmed by the entry", "shared_token", []string{"CONFIRM_BY_MEMBER"}, "distinct"},
		// The largest answer is the token, and a quorum of grants is enough.
		{"write-back off, readers", "shared_token", []string{"NO_WRITE_BACK"}, "distinct"},
		// Readers refuse each other's tokens, though no writer is there.
		{"every reader raises", "shared_token", []string{"READER_ALWAYS_RAISES", "WHOLE", "READERS=2"}, "confirmed"},
		// Who comes to read passes a writer that waits.
		{"readers barge", "shared_queue", []string{"BARGE"}, "phase_fair"},
		// Who comes while the readers are woken up comes in with them.
		{"readers join those woken up", "shared_queue", []string{"BATCH_OPEN"}, "phase_fair"},
		// All writers come before the readers.
		{"writers preferred", "shared_queue", []string{"WRITER_PREFERENCE"}, "one_writer"},

		// A node's yes counts whichever slot it gave.
		{"slots mixed", "permits", []string{"MIXED"}, "few"},
		// A repeat of a grant is given another slot.
		{"repeat of a slot", "permits", []string{"REPEAT_BLIND"}, "once"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			beside(t)
			s := search{model: tt.model, defines: tt.defines}
			f := s.run(t)
			t.Log(f)
			switch {
			case f.errors == 0 && f.cut != "":
				t.Fatalf("nothing found, but not every state was looked at: %s", f.cut)
			case f.errors == 0:
				t.Fatal("nothing is broken without this rule: it is not needed, or the model does not show what it is for")
			case f.violated != tt.breaks:
				t.Fatalf("it breaks %s, not %s:\n%s", f.violated, tt.breaks, shortest(t, s))
			}
			if size == "story" {
				t.Logf("\n%s", shortest(t, s))
			}
		})
	}
}

// TestSpareRules turns off rules that the models can do without. The design
// keeps them for what the models do not show; that nothing breaks is a finding
// that README.md reports, and must not change unnoticed.
func TestSpareRules(t *testing.T) {
	needSpin(t)
	for _, tt := range []struct {
		name    string
		model   string
		defines []string
	}{
		// An extension that is counted only while validity lasts excludes all others also where it takes a free, admitted node.
		{"extension takes free nodes", "lock", []string{"EXTEND_RECREATES"}},
		// The admission key names the server, so that a script sent by its text finds none of this one.
		{"script sent by its text", "admission", []string{"EVAL_ON_NOSCRIPT", "ALIKE"}},
		// An unchanged counter shows that nobody else was granted the key, also where it has expired.
		{"write-back guarded by counter only", "token", []string{"WRITE_BACK_BY_COUNTER_ONLY", "SORTED"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			beside(t)
			s := search{model: tt.model, defines: tt.defines}
			f := s.run(t)
			t.Log(f)
			if f.errors > 0 || f.cut != "" {
				t.Fatalf("this rule is needed after all: move it to the mutations (%s%s)\n%s", f.violated, f.cut, shortest(t, s))
			}
		})
	}
}

// TestSearchCutShort sees to it that a search which did not look at everything
// is not taken for one that found nothing.
func TestSearchCutShort(t *testing.T) {
	needSpin(t)
	for _, tt := range []struct {
		name string
		s    search
	}{
		{"depth", search{model: "token", defines: []string{"MAX=3"}, depth: 12}},
		{"memory", search{model: "token", defines: []string{"MAX=3"}, depth: 1000, memory: 44}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := tt.s.run(t)
			if f.errors != 0 || f.cut == "" {
				t.Fatalf("a search cut short by %s passes: %v", tt.name, f)
			}
			t.Logf("%v, cut: %s", f, f.cut)
		})
	}
}

// TestReached wants states to be reached in which the models are not trivial:
// what holds in none of them holds by itself.
func TestReached(t *testing.T) {
	needSpin(t)
	for _, tt := range []struct {
		name  string
		model string
		size  []string
	}{
		{"readers at once", "shared", []string{"READERS=2", "TTL=2"}},
		{"tokens of readers at once", "shared_token", []string{"READERS=2", "MAX=2"}},
		{"readers come in together", "shared_queue", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := search{model: tt.model, defines: append(slices.Clone(tt.size), "PROPERTY=alone")}
			f := s.run(t)
			t.Log(f)
			if f.violated != "alone" {
				t.Fatalf("this is never so (%s%s)", f.violated, f.cut)
			}
			if size == "story" {
				t.Logf("\n%s", shortest(t, s))
			}
		})
	}
}

// shortest returns the shortest way to a violation, a line for each step.
func shortest(t *testing.T, s search) string {
	t.Helper()
	s.breadth = true
	if f := s.run(t); f.errors == 0 {
		return "(breadth first found no violation: " + f.cut + ")"
	}
	return s.story(t)
}
