package oneshot_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// way is one way to do one-shot calls, and a server's dialect to do it in.
type way struct {
	name     string
	commands oneshot.Commands
	// spoken are the native commands that the proxy in front of the server
	// translates into a script, for servers that do not have them.
	spoken []string
	// unspoken are those that the server shall not have.
	unspoken []string
}

// ways are all of them: the native commands as Redis 8.4, Valkey 9 and Valkey
// 8.1 have them, whatever the server at hand is.
func ways() []way {
	return []way{
		{name: "script", commands: oneshot.CommandsScript},
		{name: "redis 8.4", commands: oneshot.CommandsNative, spoken: []string{"DELEX", "SET"}, unspoken: []string{"DELIFEQ"}},
		{name: "valkey 9", commands: oneshot.CommandsNative, spoken: []string{"DELIFEQ", "SET"}, unspoken: []string{"DELEX"}},
		{name: "valkey 8.1", commands: oneshot.CommandsNative, spoken: []string{"SET"}, unspoken: []string{"DELEX", "DELIFEQ"}},
		{name: "watch", commands: oneshot.CommandsWatch},
	}
}

const (
	deleteScript = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('DEL', KEYS[1])`
	setScript    = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])`
)

// speak makes the server behind p speak the way's dialect. Commands that the
// server has itself are its own.
func (w way) speak(t *testing.T, p *redistest.Proxy, s *redistest.Server) {
	has := nativeCommands(t, s)
	p.Translate(func(args []string) []string {
		command := strings.ToUpper(args[0])
		compares := command != "SET" || slices.Contains(args, "IFEQ")
		switch {
		case slices.Contains(w.unspoken, command):
			return []string{"NOSUCH" + command}
		case !compares || !slices.Contains(w.spoken, command) || slices.Contains(has, command):
			return args
		case command == "SET": // key id IFEQ id PX ttl
			return []string{"EVAL", setScript, "1", args[1], args[2], args[6]}
		}
		return []string{"EVAL", deleteScript, "1", args[1], args[len(args)-1]}
	})
}

// nativeCommands are the commands that compare which the server has.
func nativeCommands(t *testing.T, s *redistest.Server) []string {
	t.Helper()
	var has []string
	for _, command := range [][]string{{"DELEX", "", "IFEQ", ""}, {"DELIFEQ", "", ""}, {"SET", "", "", "IFEQ", "", "PX", "1"}} {
		if _, err := s.Do(command...); err == nil {
			has = append(has, command[0])
		}
	}
	return has
}

// site is n nodes that speak the way's dialect behind proxies.
type site struct {
	nodes   []*redistest.Server
	proxies []*redistest.Proxy
	config  redlatch.Config
	way     way
}

// caller makes one-shot calls on a client of its own.
type caller struct {
	*oneshot.Client
	locks *redlatch.Client
}

// newCaller opens a client for one-shot calls that are made of commands.
func newCaller(t *testing.T, c redlatch.Config, commands oneshot.Commands) caller {
	t.Helper()
	locks := locktest.Open(t, c)
	shots, err := oneshot.NewWith(locks, oneshot.Config{Commands: commands})
	if err != nil {
		t.Fatal(err)
	}
	return caller{shots, locks}
}

// open opens a client for one-shot calls the way of the site.
func (s *site) open(t *testing.T) caller {
	t.Helper()
	return newCaller(t, s.config, s.way.commands)
}

// openAgain is open by the nodes' other names.
func (s *site) openAgain(t *testing.T) caller {
	t.Helper()
	return newCaller(t, locktest.Through(s.config, locktest.ProxyURLs(s.proxies)...), s.way.commands)
}

func (w way) site(t *testing.T, nodes []*redistest.Server) *site {
	t.Helper()
	s := &site{nodes: nodes, proxies: redistest.Proxies(t, nodes), way: w}
	for i, p := range s.proxies {
		w.speak(t, p, nodes[i])
	}
	s.config = locktest.Config(locktest.ProxyURLs(s.proxies)...)
	return s
}

// eachWay runs f in every way on the kinds of server installed.
func eachWay(t *testing.T, f func(t *testing.T, w way, binary string)) {
	t.Helper()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, w := range ways() {
			t.Run(w.name, func(t *testing.T) {
				t.Parallel()
				f(t, w, binary)
			})
		}
	})
}

// tooLate is what a panic says where nodes did not answer a one-shot call in time, which
// cannot be made again as if it had not been made.
type tooLate struct{ error }

// again runs f, and again under another name where a call of it came too late, as on a busy
// machine now and then.
func again(t *testing.T, f func(t *testing.T, name string)) {
	t.Helper()
	try := func(name string) (late error) {
		defer func() {
			switch r := recover().(type) {
			case nil:
			case tooLate:
				late = r
			default:
				panic(r)
			}
		}()
		f(t, name)
		return nil
	}
	for round := range 5 {
		repeats.Store(t, true)
		if try(fmt.Sprint(t.Name(), round)) == nil {
			return
		}
	}
	repeats.Delete(t)
	f(t, t.Name())
}

// repeats has the tests that again will run once more.
var repeats sync.Map

// orAgain ends a run of again where err says that nodes were late.
func orAgain(t *testing.T, err error) {
	if _, will := repeats.Load(t); will && locktest.Late(err) {
		panic(tooLate{err})
	}
}

// is expects the outcome of a one-shot call.
func is(t *testing.T, want bool) func(got bool, err error) {
	t.Helper()
	return func(got bool, err error) {
		t.Helper()
		orAgain(t, err)
		if err != nil || got != want {
			t.Fatalf("got %t, %v, want %t", got, err, want)
		}
	}
}

// extends expects the outcome of an extension, which is made again where nodes were late, as on a busy machine.
func extends(t *testing.T, want bool, c caller, name, id string, ttl time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(locktest.Patience); ; {
		got, err := c.Extend(t.Context(), name, id, ttl)
		if err == nil || !locktest.Late(err) || time.Now().After(deadline) {
			is(t, want)(got, err)
			return
		}
	}
}

// holderIs expects what Query says.
func holderIs(t *testing.T, c caller, name, want string, least, most time.Duration) {
	t.Helper()
	id, left, err := c.Query(t.Context(), name)
	orAgain(t, err)
	if err != nil || id != want || left < least || left > most {
		t.Fatalf("held by %q for %v, %v; want %q for %v to %v", id, left, err, want, least, most)
	}
}

// serves goes through all one-shot calls on a name. Who takes, who extends and who releases
// are different clients.
func (s *site) serves(t *testing.T, name string) {
	ctx := t.Context()
	taker, keeper := s.open(t), s.openAgain(t)
	const ttl, longer = 10 * time.Second, 20 * time.Second

	holderIs(t, taker, name, "", 0, 0)
	is(t, true)(taker.Take(ctx, name, "job-10", ttl))
	holderIs(t, keeper, name, "job-10", 1, ttl)
	is(t, false)(taker.Take(ctx, name, "job-10", longer)) // the id is in its own way
	is(t, false)(keeper.Take(ctx, name, "other", longer))
	if _, err := locktest.TryInTime(t, keeper.locks, name); !errors.Is(err, redlatch.ErrHeld) {
		t.Fatalf("a lock on top of it: %v", err)
	}
	// Ids are compared whole.
	for _, id := range []string{"job-1", "job-100", "JOB-10", "job-1*", "other"} {
		extends(t, false, keeper, name, id, longer)
		is(t, false)(keeper.Release(ctx, name, id))
	}
	holderIs(t, keeper, name, "job-10", 1, ttl)
	extends(t, true, keeper, name, "job-10", longer)
	locktest.Await(t, "a quorum is seen to be extended", func() bool {
		id, left, err := taker.Query(ctx, name)
		return err == nil && id == "job-10" && left > ttl && left <= longer
	})
	is(t, true)(keeper.Release(ctx, name, "job-10"))
	for _, server := range s.nodes {
		locktest.AwaitValue(t, server, name, "")
	}
	is(t, false)(taker.Release(ctx, name, "job-10"))
	extends(t, false, taker, name, "job-10", longer) // nor is it taken anew
	holderIs(t, keeper, name, "", 0, 0)

	lock := locktest.TryLock(t, keeper.locks, name)
	is(t, false)(taker.Take(ctx, name, "x", ttl))
	locktest.Unlock(t, lock)
}

// decisive picks the commands that release or extend.
func (w way) decisive(c redistest.Command) bool {
	switch c.Name() {
	case "EVALSHA", "EXEC":
		return true
	case "DELEX", "DELIFEQ":
		return !slices.Contains(w.unspoken, c.Name())
	}
	return c.Name() == "SET" && slices.Contains(c.Args, "IFEQ")
}
