package listing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/vote"
)

// stored is a server with these strings, each with what PTTL says of it, and these sorted sets. It has no
// patterns: it answers all keys to each SCAN.
type stored struct {
	driver.Batcher
	strings map[string]string
	left    map[string]int64
	sorted  map[string][]string // members, the lowest first; the score of a reader is its name
	// odd has answers of another form, or errors, by the command's name.
	odd   map[string]driver.Reply
	fails map[string]error
	asked []string
}

func text(s string) driver.Reply { return driver.Reply{Kind: driver.Text, Text: s} }

func array(of ...string) (r driver.Reply) {
	r.Kind = driver.Array
	for _, one := range of {
		r.Array = append(r.Array, text(one))
	}
	return r
}

func (s *stored) Batch(_ context.Context, commands ...[]string) (replies []driver.Reply, errs []error) {
	for _, c := range commands {
		s.asked = append(s.asked, c[0])
		reply, is := s.odd[c[0]]
		if !is {
			reply = s.answer(c)
		}
		replies, errs = append(replies, reply), append(errs, s.fails[c[0]])
	}
	return replies, errs
}

func (s *stored) answer(c []string) driver.Reply {
	switch c[0] {
	case "SCAN":
		keys := array(slices.Sorted(maps.Keys(s.strings))...)
		return driver.Reply{Kind: driver.Array, Array: []driver.Reply{text("0"), keys}}
	case "GETRANGE":
		end, _ := strconv.Atoi(c[3])
		return text(s.strings[c[1]][:min(len(s.strings[c[1]]), end+1)])
	case "PTTL":
		return driver.Reply{Kind: driver.Int, Int: s.left[c[1]]}
	case "ZRANGE":
		members := slices.Clone(s.sorted[c[1]])
		if slices.Contains(c, "REV") {
			slices.Reverse(members)
		}
		end, _ := strconv.Atoi(c[3])
		members = members[:min(len(members), end+1)]
		if slices.Contains(c, "WITHSCORES") {
			var pairs []string
			for _, m := range members {
				pairs = append(pairs, m, m)
			}
			members = pairs
		}
		return array(members...)
	}
	return array("0", "5000") // the time is 5 ms
}

var locks = Locks{Before: "lock:", Foreign: func(string) bool { return true }}

// What is listed is what can be a lock, as it is documented: of a name, with a value of 512 bytes at most, and 1000 waiters.
func TestBounds(t *testing.T) {
	t.Parallel()
	permit := func(name string) string { return node.SlotKey(node.PermitsKey("lock:"+name), 3) }
	s := &stored{left: make(map[string]int64), strings: map[string]string{
		"lock:": "a", "lock:job": "b", "lock:long": strings.Repeat("x", 512), "lock:longer": strings.Repeat("x", 513),
		permit("job"): "c", permit("other"): "d", node.KeyPrefix + "{x}:permit:x:lock:job": "e", "lock": "f",
	}}
	queue := make([]string, 1001)
	for i := range queue {
		queue[i] = fmt.Sprint(i)
	}
	s.sorted = map[string][]string{node.SideKeys("lock:job")[queueKey]: queue}
	found, err := locks.All(t.Context(), s, "[jl]o*")
	if err != nil || len(found) != 3 {
		t.Errorf("%v, %v", slices.Collect(maps.Keys(found)), err)
	}
	for id, holder := range map[ID]string{{Name: "job"}: "b", {Name: "long"}: s.strings["lock:long"], {Name: "job", Permit: true, Slot: 3}: "c"} {
		if found[id].Holder != holder {
			t.Errorf("%+v has %q", id, found[id].Holder)
		}
	}
	if waiting := found[ID{Name: "job"}].Queue; len(waiting) != 1000 || waiting[0] != "0" {
		t.Errorf("%d wait", len(waiting))
	}
}

// Each reader has its own time left, by that of the key, or by the server's clock where the key has none; one whose time is over
// is none. With more than 1000, those that end last are listed.
func TestReaders(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	many := make([]string, 1001)
	for i := range many {
		many[i] = fmt.Sprint(i + 6)
	}
	for what, tt := range map[string]struct {
		left    int64
		readers []string
		want    map[string]time.Duration
		n       int
	}{
		"by the key":   {100, []string{"900", "950", "1000"}, map[string]time.Duration{"950": 50 * ms, "1000": 100 * ms}, 2},
		"by the clock": {-1, []string{"4", "5", "9", "11"}, map[string]time.Duration{"9": 4 * ms, "11": 6 * ms}, 2},
		"many":         {-1, many, map[string]time.Duration{"1006": 1001 * ms, "7": 2 * ms}, 1000},
		"no number":    {-1, []string{"9", "x"}, map[string]time.Duration{"9": 4 * ms}, 1},
	} {
		s := &stored{strings: map[string]string{"lock:job": vote.SharedMark + " 1"}, left: map[string]int64{"lock:job": tt.left},
			sorted: map[string][]string{node.ReadersKey("lock:job"): tt.readers}}
		found, err := Locks{Before: "lock:", Foreign: func(string) bool { return false }}.One(t.Context(), s, "job")
		readers := found[ID{Name: "job"}].Readers
		if err != nil || len(readers) != tt.n {
			t.Errorf("%s: %d readers, %v", what, len(readers), err)
		}
		for reader, left := range tt.want {
			if readers[reader] != left {
				t.Errorf("%s: %s has %v, want %v", what, reader, readers[reader], left)
			}
		}
	}
}

// An answer of another form is an error or as good as none, and no panic.
func TestOddAnswers(t *testing.T) {
	t.Parallel()
	for command, odd := range map[string]driver.Reply{"SCAN": text("0"), "TIME": text("0"), "ZRANGE": array("9", "9", "8")} {
		s := &stored{strings: map[string]string{"lock:job": vote.SharedMark + " 1"}, left: map[string]int64{"lock:job": 1},
			odd: map[string]driver.Reply{command: odd}}
		found, err := locks.All(t.Context(), s, "*")
		if (err != nil) != (command == "SCAN") || err == nil && len(found) != 1 {
			t.Errorf("%s: %v, %v", command, found, err)
		}
	}
}

// What ends a listing is told, and is not hidden behind a key that is left out; of a server that is late it is ErrNotInTime.
func TestErrors(t *testing.T) {
	t.Parallel()
	denied := &driver.ServerError{Text: "NOPERM No permissions to access a key"}
	if !driver.KeyDenied(denied) {
		t.Fatal("not the text of a server")
	}
	broken := errors.New("the connection broke")
	for what, tt := range map[string]struct {
		fails map[string]error
		want  error
	}{
		"a key":         {map[string]error{"PTTL": denied}, denied},
		"a look":        {map[string]error{"TIME": broken, "PTTL": denied}, broken},
		"a late answer": {map[string]error{"SCAN": fmt.Errorf("%w", context.DeadlineExceeded)}, ErrNotInTime},
	} {
		s := &stored{strings: map[string]string{"lock:job": "a"}, fails: tt.fails}
		_, err := locks.All(t.Context(), s, "*")
		if _, leftOut := errors.AsType[*LeftOutError](err); !errors.Is(err, tt.want) || leftOut != (what == "a key") {
			t.Errorf("%s: %v", what, err)
		}
	}
	s := &second{stored: stored{strings: map[string]string{"lock:job": "a"}, fails: map[string]error{"PTTL": denied}}, err: broken}
	if _, err := locks.All(t.Context(), s, "*"); !errors.Is(err, broken) {
		t.Errorf("the second SCAN: %v", err)
	}
}

// second is a server that fails with err from the second SCAN on.
type second struct {
	stored
	err error
}

func (s *second) Batch(ctx context.Context, commands ...[]string) ([]driver.Reply, []error) {
	if commands[0][0] == "SCAN" && slices.Contains(s.asked, "SCAN") {
		return make([]driver.Reply, 1), []error{s.err}
	}
	return s.stored.Batch(ctx, commands...)
}

// A page without a lock asks for nothing more.
func TestPageWithoutLocks(t *testing.T) {
	t.Parallel()
	s := &stored{strings: map[string]string{"data": "a"}}
	if found, err := locks.All(t.Context(), s, "*"); err != nil || len(found) > 0 || !slices.Equal(s.asked, []string{"SCAN", "SCAN"}) {
		t.Errorf("%v, %v: asked %q", found, err, s.asked)
	}
}
