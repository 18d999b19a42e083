package redlatch_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
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
	locks := open(t, c)
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
	return newCaller(t, through(s.config, proxyURLs(s.proxies)...), s.way.commands)
}

func (w way) site(t *testing.T, nodes []*redistest.Server) *site {
	t.Helper()
	s := &site{nodes: nodes, proxies: redistest.Proxies(t, nodes), way: w}
	for i, p := range s.proxies {
		w.speak(t, p, nodes[i])
	}
	s.config = config(proxyURLs(s.proxies)...)
	return s
}

// eachWay runs f in every way on the kinds of server installed.
func eachWay(t *testing.T, f func(t *testing.T, w way, binary string)) {
	t.Helper()
	eachFlavor(t, func(t *testing.T, binary string) {
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
	if _, will := repeats.Load(t); will && late(err) {
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

// holderIs expects what Query says.
func holderIs(t *testing.T, c caller, name, want string, least, most time.Duration) {
	t.Helper()
	id, left, err := c.Query(t.Context(), name)
	orAgain(t, err)
	if err != nil || id != want || left < least || left > most {
		t.Fatalf("held by %q for %v, %v; want %q for %v to %v", id, left, err, want, least, most)
	}
}

func TestOneShot(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		for _, n := range []int{1, 3, 5} {
			t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
				t.Parallel()
				s := w.site(t, sharedOf(t, binary, n))
				again(t, s.serves)
			})
		}
	})
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
	if _, err := tryInTime(t, keeper.locks, name); !errors.Is(err, redlatch.ErrHeld) {
		t.Fatalf("a lock on top of it: %v", err)
	}
	// Ids are compared whole.
	for _, id := range []string{"job-1", "job-100", "JOB-10", "job-1*", "other"} {
		is(t, false)(keeper.Extend(ctx, name, id, longer))
		is(t, false)(keeper.Release(ctx, name, id))
	}
	holderIs(t, keeper, name, "job-10", 1, ttl)
	is(t, true)(keeper.Extend(ctx, name, "job-10", longer))
	await(t, "a quorum is seen to be extended", func() bool {
		id, left, err := taker.Query(ctx, name)
		return err == nil && id == "job-10" && left > ttl && left <= longer
	})
	is(t, true)(keeper.Release(ctx, name, "job-10"))
	for _, server := range s.nodes {
		awaitValue(t, server, name, "")
	}
	is(t, false)(taker.Release(ctx, name, "job-10"))
	is(t, false)(taker.Extend(ctx, name, "job-10", longer)) // nor is it taken anew
	holderIs(t, keeper, name, "", 0, 0)

	lock := tryLock(t, keeper.locks, name)
	is(t, false)(taker.Take(ctx, name, "x", ttl))
	unlock(t, lock)
}

// Without a proxy in between, a server's own commands are used where it has them.
func TestNativeCommandsOfTheServer(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		server := sharedOf(t, binary, 1)[0]
		client := newCaller(t, config(server.URL()), oneshot.CommandsNative)
		has := nativeCommands(t, server)
		t.Logf("%s has %q", server.Version(), has)
		is(t, true)(client.Take(t.Context(), t.Name(), "x", 20*time.Second))
		ok, err := client.Release(t.Context(), t.Name(), "x")
		if len(has) > 0 {
			is(t, true)(ok, err)
			return
		}
		if ok || !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "DELEX") || !strings.Contains(err.Error(), "DELIFEQ") {
			t.Errorf("got %t, %v", ok, err)
		}
	})
}

func TestOneShotArguments(t *testing.T) {
	t.Parallel()
	server := shared(t, 1)[0]
	client := newCaller(t, config(server.URL()), oneshot.CommandsAuto)
	ctx, name := t.Context(), t.Name()
	for _, ttl := range []time.Duration{0, -time.Second, 999 * time.Microsecond, 2 * time.Millisecond, time.Hour} {
		for what, call := range map[string]func() (bool, error){
			"take":   func() (bool, error) { return client.Take(ctx, name, "x", ttl) },
			"extend": func() (bool, error) { return client.Extend(ctx, name, "x", ttl) },
		} {
			if ok, err := call(); ok || !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "ttl") {
				t.Errorf("%s with a TTL of %v: %t, %v", what, ttl, ok, err)
			}
		}
	}
	for _, id := range []string{"", strings.Repeat("x", 513)} {
		if ok, err := client.Take(ctx, name, id, time.Second); ok || !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("id %.10q: %t, %v", id, ok, err)
		}
	}
	if _, err := client.Release(ctx, "", "x"); !errors.Is(err, redlatch.ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
	if v := value(t, server, name); v != "" {
		t.Errorf("set all the same: %q", v)
	}
	// Any bytes are an id.
	is(t, true)(client.Take(ctx, name, "a b\r\n\x00ü", 5*time.Second))
	is(t, true)(client.Release(ctx, name, "a b\r\n\x00ü"))

	for _, commands := range []oneshot.Commands{oneshot.CommandsNative, oneshot.CommandsWatch, 9} {
		c := config(server.URL())
		c.NoQuarantine = commands > oneshot.CommandsWatch
		if _, err := oneshot.NewWith(open(t, c), oneshot.Config{Commands: commands}); !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "Config.Commands") {
			t.Errorf("commands %d are refused with %v", commands, err)
		}
	}
	ended := within(t, 0)
	<-ended.Done()
	if _, err := client.Take(ended, name, "x", time.Second); !errors.Is(err, ended.Err()) {
		t.Errorf("ctx is done: %v", err)
	}
	client.locks.Close()
	if _, err := client.Take(ctx, name, "x", time.Second); !errors.Is(err, redlatch.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestOneShotWrongType(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		ctx, name := t.Context(), t.Name()
		s := w.site(t, sharedOf(t, binary, 3))
		client := s.open(t)
		for _, server := range s.nodes[:2] {
			do(t, server, "RPUSH", name, "x")
		}
		_, _, query := client.Query(ctx, name)
		_, take := client.Take(ctx, name, "x", 10*time.Second)
		extended, extend := client.Extend(ctx, name, "x", 10*time.Second)
		released, release := client.Release(ctx, name, "x")
		for op, err := range map[string]error{"query": query, "take": take} {
			if !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "WRONGTYPE") {
				t.Errorf("%s: %v", op, err)
			}
		}
		// These say that it is not ours, or that it is a list.
		if extended || extend != nil && !errors.Is(extend, redlatch.ErrRefused) {
			t.Errorf("extend: %t, %v", extended, extend)
		}
		if released || release != nil && !errors.Is(release, redlatch.ErrRefused) {
			t.Errorf("release: %t, %v", released, release)
		}
		awaitValue(t, s.nodes[2], name, "")
		for _, server := range s.nodes[:2] {
			if n := do(t, server, "LLEN", name); n != int64(1) {
				t.Errorf("the list has %v elements", n)
			}
			do(t, server, "DEL", name)
		}
	})
}

// loseOnce has the reply to the next command that f picks lost.
func loseOnce(p *redistest.Proxy, how redistest.Action, picks func(redistest.Command) bool) {
	var struck atomic.Bool
	p.OnCommand(func(c redistest.Command) redistest.Action {
		if picks(c) && struck.CompareAndSwap(false, true) {
			return how
		}
		return redistest.Pass
	})
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

// The record was deleted and the reply is lost: a further try finds nothing, and
// that does not mean that it was not ours.
func TestReplyToOneShotReleaseIsLost(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		for name, how := range losses() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx, name := t.Context(), t.Name()
				s := w.site(t, sharedOf(t, binary, 1))
				client := s.open(t)
				await(t, "taken", func() bool {
					ok, err := client.Take(ctx, name, "x", 20*time.Second)
					return ok || !late(err)
				})
				holderIs(t, client, name, "x", 1, 20*time.Second)
				loseOnce(s.proxies[0], how, w.decisive)
				ok, err := client.Release(ctx, name, "x")
				if w.name == "valkey 8.1" && ok {
					awaitValue(t, s.nodes[0], name, "")
					return // it was asked again within the 1 ms, and found it
				}
				if ok || !errors.Is(err, redlatch.ErrNoQuorum) {
					t.Fatalf("got %t, %v", ok, err)
				}
				if a := verdictOf(t, err, 0); a.Verdict != redlatch.VoteUnknown || a.Err == nil {
					t.Errorf("the node's answer is %v", a)
				}
				awaitValue(t, s.nodes[0], name, "")
			})
		}
	})
}

// The release was cut off before the server had it: the second try deletes.
func TestOneShotReleaseIsCutOff(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		ctx, name := t.Context(), t.Name()
		s := w.site(t, sharedOf(t, binary, 1))
		client := s.open(t)
		is(t, true)(client.Take(ctx, name, "x", 20*time.Second))
		loseOnce(s.proxies[0], redistest.CutBefore, w.decisive)
		is(t, true)(client.Release(ctx, name, "x"))
		awaitValue(t, s.nodes[0], name, "")
	})
}

// The record was set and the reply is lost: the caller gets an error, and can
// find out.
func TestReplyToTakeIsLost(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		ctx, name := t.Context(), t.Name()
		s := w.site(t, sharedOf(t, binary, 1))
		client := s.open(t)
		loseOnce(s.proxies[0], redistest.CutAfter, func(c redistest.Command) bool {
			set, _ := step(c)
			return set == "acquire" || c.Name() == "SET"
		})
		ok, err := client.Take(ctx, name, "x", 20*time.Second)
		if ok || !errors.Is(err, redlatch.ErrNoQuorum) || verdictOf(t, err, 0).Verdict != redlatch.VoteUnknown {
			t.Fatalf("got %t, %v", ok, err)
		}
		awaitValue(t, s.nodes[0], name, "x")
		is(t, false)(client.Take(ctx, name, "x", 20*time.Second))
		is(t, true)(client.Extend(ctx, name, "x", 20*time.Second))
		is(t, true)(client.Release(ctx, name, "x"))
	})
}

// A take that fails takes back what it set, and nothing that was there before it
// under the same id.
func TestFailedTakeUndoesItsOwn(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		ctx, name := t.Context(), t.Name()
		s := w.site(t, sharedOf(t, binary, 3))
		client := s.open(t)
		for _, holder := range []string{"other", "mine"} {
			for _, server := range s.nodes[:2] {
				do(t, server, "SET", name, holder, "PX", "20000")
			}
			is(t, false)(client.Take(ctx, name, "mine", 30*time.Second)) // longer than is waited
			awaitValue(t, s.nodes[2], name, "")
			for _, server := range s.nodes[:2] {
				if v := value(t, server, name); v != holder {
					t.Errorf("%q is now %q", holder, v)
				}
				do(t, server, "DEL", name)
			}
		}
		// One node is not enough to be in the way.
		do(t, s.nodes[1], "SET", name, "other", "PX", "20000")
		is(t, true)(client.Take(ctx, name, "mine", 10*time.Second))
		holderIs(t, client, name, "mine", 1, 10*time.Second)
		is(t, true)(client.Release(ctx, name, "mine"))
		awaitValue(t, s.nodes[1], name, "other")
		do(t, s.nodes[1], "DEL", name)
	})
}

// A minority that is cut off or hangs is not waited for; a majority is an error.
func TestOneShotWithoutAMinority(t *testing.T) {
	t.Parallel()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			ctx, name := t.Context(), t.Name()
			s := w.site(t, shared(t, 5))
			client := s.open(t)
			s.proxies[0].BlackHole(redistest.Both, true)
			if err := s.proxies[1].Refuse(true); err != nil {
				t.Fatal(err)
			}
			s.proxies[1].Cut()
			await(t, "taken", func() bool {
				ok, err := client.Take(ctx, name, "x", 20*time.Second)
				return ok && err == nil
			})
			is(t, true)(client.Extend(ctx, name, "x", 20*time.Second))
			holderIs(t, client, name, "x", 1, 20*time.Second)
			s.proxies[2].BlackHole(redistest.Both, true)
			for op, call := range map[string]func() error{
				"take":   func() error { _, err := client.Take(ctx, name+"/2", "x", 20*time.Second); return err },
				"extend": func() error { _, err := client.Extend(ctx, name, "x", 20*time.Second); return err },
				"query":  func() error { _, _, err := client.Query(ctx, name); return err },
			} {
				err := call()
				if !errors.Is(err, redlatch.ErrNoQuorum) || failureOf(t, err).Op != op {
					t.Errorf("%s: %v", op, err)
				}
			}
			for _, server := range s.nodes[3:] {
				awaitValue(t, server, name+"/2", "")
			}
			s.proxies[2].BlackHole(redistest.Both, false)
			await(t, "released", func() bool {
				ok, err := client.Release(ctx, name, "x")
				return ok || err == nil
			})
			for _, server := range s.nodes[2:] {
				awaitValue(t, server, name, "")
			}
			do(t, s.nodes[0], "DEL", name)
			do(t, s.nodes[1], "DEL", name)
		})
	}
}

// Users who may run no script: commands where the quarantine is off, an error that
// says so where it is on.
func TestOneShotWithoutScripts(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary, Users: []string{
			"noscripts on >secret ~* +@all -@scripting",
			"noevalsha on >secret ~* +@all -evalsha",
			"least on >secret ~job* -@all +set +get +pttl +del +pexpire +watch +unwatch +multi +exec",
		}})
		for _, user := range []string{"noscripts", "noevalsha", "least"} {
			t.Run(user, func(t *testing.T) {
				ctx, name := t.Context(), "job "+user
				client := newCaller(t, config(server.URLAs(user, "secret")), oneshot.CommandsAuto)
				is(t, true)(client.Take(ctx, name, "x", 20*time.Second))
				is(t, false)(client.Take(ctx, name, "y", 20*time.Second))
				is(t, false)(client.Extend(ctx, name, "y", 20*time.Second))
				is(t, true)(client.Extend(ctx, name, "x", 20*time.Second))
				holderIs(t, client, name, "x", 1, 20*time.Second)
				is(t, false)(client.Release(ctx, name, "y"))
				is(t, true)(client.Release(ctx, name, "x"))
				awaitValue(t, server, name, "") // SET IFEQ takes 1 ms
				if _, err := tryInTime(t, client.locks, name); !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "NOPERM") {
					t.Errorf("lock: %v", err)
				}

				c := config(server.URLAs(user, "secret"))
				c.NoQuarantine = false
				_, err := newCaller(t, c, oneshot.CommandsAuto).Take(ctx, name, "x", 20*time.Second)
				if !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "NoQuarantine") || !strings.Contains(err.Error(), "NOPERM") {
					t.Errorf("with the quarantine on: %v", err)
				}
			})
		}
	})
}

// A node that has just started may have forgotten locks.
func TestTakeAtANodeNotAdmitted(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	c := config(server.URL())
	c.NoQuarantine = false
	client := newCaller(t, c, oneshot.CommandsAuto)
	if ok, err := client.Take(t.Context(), "x", "id", 10*time.Second); ok || !errors.Is(err, redlatch.ErrNotAdmitted) {
		t.Fatalf("got %t, %v", ok, err)
	}
	if err := client.locks.Admit(t.Context(), c.Nodes[0]); err != nil {
		t.Fatal(err)
	}
	is(t, true)(client.Take(t.Context(), "x", "id", 10*time.Second))
	is(t, true)(client.Extend(t.Context(), "x", "id", 20*time.Second))
	is(t, true)(client.Release(t.Context(), "x", "id"))
}

// The key changes hands between WATCH and EXEC, and the connection breaks there:
// what is the other's stays.
func TestWatchedKeyChanges(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		for what, then := range map[string]redistest.Action{"change": redistest.Pass, "change and cut": redistest.CutBefore} {
			for _, command := range []string{"MULTI", "DEL", "EXEC"} {
				t.Run(what+" before "+command, func(t *testing.T) {
					t.Parallel()
					ctx, name := t.Context(), t.Name()
					s := way{commands: oneshot.CommandsWatch}.site(t, sharedOf(t, binary, 1))
					client := s.open(t)
					is(t, true)(client.Take(ctx, name, "x", 20*time.Second))
					var struck atomic.Bool
					s.proxies[0].OnCommand(func(c redistest.Command) redistest.Action {
						if c.Name() != command || struck.Swap(true) {
							return redistest.Pass
						}
						if _, err := s.nodes[0].Do("SET", name, "other"); err != nil {
							t.Error(err)
						}
						return then
					})
					ok, err := client.Release(ctx, name, "x")
					if ok || err != nil && !errors.Is(err, redlatch.ErrNoQuorum) || then == redistest.Pass && err != nil {
						t.Errorf("got %t, %v", ok, err)
					}
					if v := value(t, s.nodes[0], name); v != "other" || !struck.Load() {
						t.Errorf("the other's record is now %q", v)
					}
					do(t, s.nodes[0], "DEL", name)
				})
			}
		}
	})
}

// Several clients take and release by turns, and no two hold at once.
func TestOneShotExcludes(t *testing.T) {
	t.Parallel()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			ctx, name := t.Context(), t.Name()
			s := w.site(t, shared(t, 3))
			var inside, turns atomic.Int32
			var all sync.WaitGroup
			for range 3 {
				client := s.openAgain(t)
				all.Go(func() {
					for try := 0; turns.Load() < 20; try++ {
						id := fmt.Sprintf("%p-%d", client.Client, try)
						held, err := client.Take(ctx, name, id, 20*time.Second)
						if err != nil {
							t.Error(err)
							return
						}
						if !held {
							continue
						}
						if inside.Add(1) != 1 {
							t.Error("two hold it")
						}
						turns.Add(1)
						inside.Add(-1)
						if ok, err := client.Release(ctx, name, id); !ok || err != nil {
							t.Errorf("release: %t, %v", ok, err)
							return
						}
					}
				})
			}
			all.Wait()
			for _, server := range s.nodes {
				awaitValue(t, server, name, "")
			}
		})
	}
}

// A lock that was detached outlives its client, and is released by its id.
func TestDetach(t *testing.T) {
	t.Parallel()
	ctx, name := t.Context(), t.Name()
	nodes := shared(t, 3)
	c := config(redistest.URLs(nodes)...)
	client, other := open(t, c), newCaller(t, c, oneshot.CommandsAuto)
	lock := tryLock(t, client, name, redlatch.WithLabel("somebody"))
	id, err := lock.Detach()
	if err != nil {
		t.Fatal(err)
	}
	<-lock.Context().Done()
	if _, again := lock.Detach(); !errors.Is(again, redlatch.ErrReleased) || !errors.Is(lock.Unlock(ctx), redlatch.ErrReleased) || !errors.Is(lock.Extend(ctx, time.Second), redlatch.ErrReleased) {
		t.Errorf("detached, it is %v", lock.Err())
	}
	if held := client.Stats().Held; held != 0 {
		t.Errorf("%d held", held)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	h := inspect(t, other, name)
	if h.Holder.ID != id || h.Holder.Label != "somebody" || h.Left <= 0 || len(h.Nodes) != 3 {
		t.Errorf("held by %+v", h)
	}
	is(t, true)(other.Extend(ctx, name, id, 20*time.Second))
	is(t, true)(other.Release(ctx, name, id))
	for _, server := range nodes {
		awaitValue(t, server, name, "")
	}

	// The client that detached it waits for it like everybody else.
	id, err = tryLock(t, other.locks, name, redlatch.WithTTL(30*time.Second)).Detach()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tryInTime(t, other.locks, name); !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("detached: %v", err)
	}
	is(t, true)(other.Release(ctx, name, id))
	next, err := other.locks.Lock(within(t, patience), name)
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, next)

	released := tryLock(t, other.locks, name)
	unlock(t, released)
	if _, err := released.Detach(); !errors.Is(err, redlatch.ErrReleased) {
		t.Errorf("released: %v", err)
	}
}

// inspect is Inspect until all nodes have answered: it waits for the last one only a little.
func inspect(t *testing.T, c caller, name string) (h oneshot.Holding) {
	t.Helper()
	await(t, "all nodes answer", func() bool {
		var err error
		h, err = c.Inspect(t.Context(), name)
		if err != nil && !late(err) {
			t.Fatal(err)
		}
		return err == nil && !slices.ContainsFunc(h.Nodes, func(a redlatch.NodeAnswer) bool { return a.Verdict == redlatch.VoteUnknown })
	})
	return h
}

// Who holds a lock is what a quorum says.
func TestInspect(t *testing.T) {
	t.Parallel()
	name := t.Name()
	nodes := shared(t, 3)
	client := newCaller(t, config(redistest.URLs(nodes)...), oneshot.CommandsAuto)
	for i, holder := range []string{"a", "b", "c"} {
		do(t, nodes[i], "SET", name, holder, "PX", "20000")
	}
	holderIs(t, client, name, "", 0, 0) // nobody has a quorum
	do(t, nodes[1], "SET", name, "a")
	holderIs(t, client, name, "a", 1, 20*time.Second) // a quorum as long as the first
	do(t, nodes[0], "SET", name, "a")
	holderIs(t, client, name, "a", -1, -1) // for ever
	if h := inspect(t, client, name); h.Nodes[2].Holder.ID != "c" || h.Nodes[2].Left <= 0 || h.Nodes[0].Left >= 0 {
		t.Errorf("%+v", h)
	}
	for _, server := range nodes {
		do(t, server, "DEL", name)
	}
	if h := inspect(t, client, name); h.Holder.ID != "" || h.Nodes[1].Verdict != redlatch.VoteNotOurs {
		t.Errorf("%+v", h)
	}
}

// Who waits in Lock gets what was taken and released by one-shot calls, long
// before its TTL is over.
func TestLockWaitsForATake(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		ctx, name := t.Context(), t.Name()
		s := w.site(t, sharedOf(t, binary, 3))
		taker, waiter := s.open(t), s.openAgain(t)
		is(t, true)(taker.Take(ctx, name, "x", 30*time.Second))
		waits, got := make(chan struct{}), make(chan error, 1)
		stands := sync.OnceFunc(func() { close(waits) })
		limited := within(t, patience)
		go func() {
			lock, err := waiter.locks.Lock(limited, name, redlatch.WithWaitReport(func(error) { stands() }))
			if err == nil {
				err = lock.Unlock(ctx)
			}
			got <- err
		}()
		<-waits
		is(t, true)(taker.Release(ctx, name, "x"))
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}
