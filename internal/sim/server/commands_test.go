package server

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/seed"
)

// comparison sends the same commands to a real server and to a simulated one.
type comparison struct {
	t    *testing.T
	rng  *rand.Rand
	conn *redistest.Conn
	ours *Server
	now  time.Time // ours
}

func newComparison(t *testing.T, flavor string) *comparison {
	real := redistest.New(t, redistest.Options{Binary: flavor})
	conn, err := real.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &comparison{t: t, conn: conn, rng: rand.New(rand.NewPCG(seed.Of(t), 0))}
	c.now = c.time()
	c.ours = New("run", func() time.Time { return c.now })
	return c
}

// real executes a command on the real server.
func (c *comparison) real(args ...string) any {
	c.t.Helper()
	reply, err := c.conn.Do(args...)
	if refusal := redistest.ServerError(""); errors.As(err, &refusal) {
		return refusal
	}
	if err != nil {
		c.t.Fatalf("%q: %v", args, err)
	}
	return reply
}

// time is the real server's.
func (c *comparison) time() time.Time {
	return timeOf(c.real("TIME"))
}

func timeOf(reply any) time.Time {
	pair := reply.([]any)
	seconds, _ := strconv.ParseInt(pair[0].(string), 10, 64)
	micros, _ := strconv.ParseInt(pair[1].(string), 10, 64)
	return time.UnixMicro(seconds*1e6 + micros)
}

// plain is a reply as a real connection returns it.
func plain(r driver.Reply, err error) any {
	if err != nil {
		return redistest.ServerError(err.Error())
	}
	switch r.Kind {
	case driver.Int:
		return r.Int
	case driver.Text:
		return r.Text
	case driver.Array:
		elements := make([]any, len(r.Array))
		for i, element := range r.Array {
			elements[i] = plain(element, nil)
		}
		return elements
	}
	return nil
}

func pick[T any](c *comparison, of ...T) T { return of[c.rng.IntN(len(of))] }

const (
	brief = "5"       // ms: is over before the next command
	long  = "3600000" // outlives the test
)

// command is a random command of those that the scripts send, mostly a valid one.
func (c *comparison) command() []string {
	key := pick(c, "a", "b", "c")
	value := pick(c, "", "x", "1764000000000000", "-1")
	ms := pick(c, long, long, long, "7200000", brief, "0", "-1", "x", "9223372036854775807")
	member := pick(c, "m", "n", "o", "")
	score := pick(c, "0", "1", "2", "1764000000000000", "-3", "1.5", "x", "inf")
	switch c.rng.IntN(20) {
	case 0:
		return []string{"TIME"}
	case 1:
		return []string{"PUBLISH", "nobody", value}
	case 2:
		return []string{"RPUSH", key, value}
	case 3:
		return []string{"GET", key}
	case 4:
		return slices.Concat([]string{"MGET", key}, pick(c, nil, []string{"b"}, []string{"c", "a"}))
	case 5, 6, 7:
		command := []string{"SET", key, value}
		for range c.rng.IntN(3) {
			command = append(command, pick(c, []string{"NX"}, []string{"XX"}, []string{"GET"}, []string{"KEEPTTL"},
				[]string{"PX", ms}, []string{"PX", long}, []string{"EX", "3600"}, []string{"EX"}, []string{"nx"})...)
		}
		return command
	case 8:
		return []string{"PSETEX", key, ms, value}
	case 9:
		return slices.Concat([]string{"DEL", key}, pick(c, nil, []string{"b"}))
	case 10:
		return []string{"PTTL", key}
	case 11, 12:
		return slices.Concat([]string{"PEXPIRE", key, ms}, pick(c, nil, nil, []string{"GT"}, []string{"LT"}, []string{"NX"}, []string{"XX"}, []string{"gt", "xx"}, []string{"GT", "LT"}, []string{"NX", "GT"}, []string{"y"}))
	case 13, 14, 15:
		return slices.Concat([]string{"ZADD", key, score, member}, pick(c, nil, nil, []string{"7", "o"}))
	case 16:
		return slices.Concat([]string{"ZREM", key, member}, pick(c, nil, []string{"m"}))
	case 17:
		bounds := pick(c, []string{"0", "0"}, []string{"0", "-1"}, []string{"-2", "1"}, []string{"5", "9"}, []string{"x", "1"}, []string{"1", "0"})
		return slices.Concat([]string{"ZRANGE", key}, bounds, pick(c, nil, []string{"WITHSCORES"}, []string{"LIMIT", "0", "1"}))
	case 18:
		bounds := pick(c, []string{"-inf", "(2"}, []string{"(1", "+inf"}, []string{"1", "2"}, []string{"3", "x"}, []string{"2", "1"})
		return slices.Concat([]string{"ZRANGE", key}, bounds, []string{"BYSCORE"}, pick(c, nil, []string{"LIMIT", "0", "64"}, []string{"LIMIT", "1", "1"}, []string{"LIMIT", "-1", "1"}, []string{"LIMIT", "0", "-1"}))
	}
	return []string{pick(c, "ZSCORE", "ZRANK"), key, member}
}

// step sends one command to both.
func (c *comparison) step(args []string) {
	c.now = c.time()
	copied := *c.ours
	copied.data = c.ours.Snapshot()
	early := plain(copied.Exec(args))
	real := c.real(args...)
	c.now = c.time()
	late := plain(c.ours.Exec(args))
	if slices.Contains(args, brief) {
		for over := c.now.Add(10 * time.Millisecond); c.now.Before(over); c.now = c.time() {
			time.Sleep(time.Millisecond)
		}
	}
	same := alike(real, early, late)
	if args[0] == "TIME" {
		same = !timeOf(real).Before(timeOf(early)) && !timeOf(late).Before(timeOf(real))
	}
	if !same {
		if args[0] == "PEXPIRE" && fmt.Sprint(early) != fmt.Sprint(late) {
			// It was executed before a millisecond was over, or after.
			c.real("FLUSHALL")
			c.ours.FlushAll()
			return
		}
		c.t.Fatalf("%q: the server answers %#v, the simulated one %#v, or later %#v", args, real, early, late)
	}
	for _, key := range []string{"a", "b", "c"} {
		c.key(args, key, copied.data[key].expires)
	}
}

// alike reports whether a real reply is what the simulated server answers at both ends of a
// span of time, or a number between.
func alike(real, early, late any) bool {
	if n, ok := real.(int64); ok {
		first, ok := early.(int64)
		last, ok2 := late.(int64)
		return ok && ok2 && min(first, last) <= n && n <= max(first, last)
	}
	return reflect.DeepEqual(real, early) && reflect.DeepEqual(real, late)
}

// key compares what is at key, and has the simulated server take the real one's expiry, which
// was early at the least.
func (c *comparison) key(args []string, key string, early int64) {
	c.t.Helper()
	e, found := c.ours.data.live(key, c.now.UnixMilli())
	real := c.real("PEXPIRETIME", key).(int64)
	if found != (real != -2) {
		c.t.Fatalf("after %q: PEXPIRETIME %s is %d, the simulated server has it %t", args, key, real, found)
	}
	if !found {
		return
	}
	if real = max(0, real); real < min(early, e.expires) || real > e.expires {
		c.t.Fatalf("after %q: %s expires at %d, by the simulated server at %d to %d", args, key, real, early, e.expires)
	}
	e.expires = real
	c.ours.data[key] = e
	look := map[valueKind][]string{stringValue: {"GET", key}, sortedSet: {"ZRANGE", key, "0", "-1", "WITHSCORES"}, otherValue: {"TYPE", key}}[e.kind]
	if there := c.real(look...); e.kind != otherValue && fmt.Sprint(there) != fmt.Sprint(plain(c.ours.Exec(look))) {
		c.t.Fatalf("after %q: %q answers %v, the simulated server %v", args, look, there, plain(c.ours.Exec(look)))
	}
}

func onEachFlavor(t *testing.T, test func(c *comparison)) {
	flavors := redistest.Flavors()
	if len(flavors) == 0 {
		t.Fatal(redistest.ErrNoServer)
	}
	for _, flavor := range flavors {
		t.Run(flavor, func(t *testing.T) { test(newComparison(t, flavor)) })
	}
}

// Every random command has the same reply from the simulated server as from a real one, and
// leaves the same keys.
func TestCommands(t *testing.T) {
	onEachFlavor(t, func(c *comparison) {
		for range 3000 {
			c.step(c.command())
		}
	})
}

// INFO says what a real server does, in the sections in which that says it.
func TestInfo(t *testing.T) {
	onEachFlavor(t, func(c *comparison) {
		c.real("FLUSHALL")
		c.ours.FlushAll()
		for _, section := range []string{"server", "replication", "persistence", "memory", "stats", "commandstats"} {
			real := c.real("INFO", section).(string)
			for line := range strings.Lines(plain(c.ours.Exec([]string{"INFO", section})).(string)) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
				_, after, ok := strings.Cut(real, name)
				after, _, _ = strings.Cut(after, "\r\n")
				same := after == ":"+value || value == ""
				switch name {
				case "redis_version", "run_id", "uptime_in_seconds", "master_replid":
					same = strings.HasPrefix(after, ":")
				case "cmdstat_flushall":
					same = strings.HasPrefix(after, ":calls=1,")
				}
				if !ok || !same {
					t.Errorf("INFO %s: the server says %q, the simulated one %q", section, name+after, strings.TrimSpace(line))
				}
			}
		}
	})
}
