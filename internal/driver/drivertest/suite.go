// Package drivertest is the one suite that every driver.Conn passes, on real
// servers behind a network that fails.
package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/seed"
)

// patience bounds what must happen; it says nothing about how fast.
const patience = 40 * time.Second

// Subject is a way to connect.
type Subject struct {
	// Stage starts the servers for one test.
	Stage func(t *testing.T, binary string) Stage
	// Connect returns a connection over a Stage, and closes it when the test is done.
	Connect func(t *testing.T, s Stage) driver.Conn
	// Ends: a command that its caller has abandoned may never be executed.
	Ends bool
}

// Run puts a subject through the suite, on every kind of server installed.
func Run(t *testing.T, subject Subject) {
	t.Helper()
	flavors := redistest.Flavors()
	if len(flavors) == 0 {
		t.Fatal(redistest.ErrNoServer)
	}
	for _, binary := range flavors {
		for _, part := range parts {
			t.Run(binary+"/"+part.name, func(t *testing.T) {
				t.Parallel()
				s := subject.Stage(t, binary)
				part.test(t, &run{Stage: s, ends: subject.Ends, conn: subject.Connect(t, s), connect: func() driver.Conn { return subject.Connect(t, s) }})
			})
		}
	}
}

var parts = []struct {
	name string
	test func(t *testing.T, r *run)
}{
	{"replies", replies},
	{"a later call is executed later", later},
	{"at most once", atMostOnce},
	{"at most once among many", atMostOnceAmongMany},
	{"not sent", notSent},
	{"an abandoned command goes on", abandoned},
	{"callers leave a hung server", hung},
	{"close", closing},
	{"messages are heard in order", hears},
	{"messages are heard until the connection is cut", hearsUntilCut},
	{"messages are heard unless the user may not", hearsUnlessDenied},
	{"messages are heard until close", hearsUntilClose},
	{"a script watches what it reads", watches},
	{"what watches is refused like any other", watchesWhatIsRefused},
	{"a script watches unless the user may not", watchesUnlessDenied},
}

// run is one test under way.
type run struct {
	Stage
	ends    bool
	conn    driver.Conn
	connect func() driver.Conn
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// sends calls send again where its command was not sent: when a process has stood still on a busy machine, Sentinels have
// to be asked first.
func sends(send func() error) error {
	for deadline := time.Now().Add(patience); ; <-time.After(time.Millisecond) {
		err := send()
		if !errors.Is(err, driver.ErrNotSent) || time.Now().After(deadline) {
			return err
		}
	}
}

// do sends a command and returns its reply.
func (r *run) do(t *testing.T, args ...string) (reply driver.Reply, err error) {
	t.Helper()
	err = sends(func() (err error) { reply, err = r.conn.Do(within(t, patience), args...); return err })
	return reply, err
}

// must sends a command and returns its reply, which is no error.
func (r *run) must(t *testing.T, args ...string) driver.Reply {
	t.Helper()
	reply, err := r.do(t, args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// warm makes sure that the connection stands.
func (r *run) warm(t *testing.T) {
	t.Helper()
	r.must(t, "GET", r.Key("warm"))
}

// direct asks the server itself, not through the subject.
func (r *run) direct(t *testing.T, args ...string) any {
	t.Helper()
	reply, err := r.Server.Do(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// load loads a script and returns its SHA1.
func (r *run) load(t *testing.T, text string) string {
	t.Helper()
	return r.direct(t, "SCRIPT", "LOAD", text).(string)
}

// unknown reports whether err leaves open what became of the command.
func unknown(err error) bool {
	_, refused := errors.AsType[*driver.ServerError](err)
	return err != nil && !refused && !errors.Is(err, driver.ErrNotSent)
}

// Every kind of reply, over the wire of a real server.
func replies(t *testing.T, r *run) {
	k := r.Key("k")
	if got := r.must(t, "GET", r.Key("none")); got.Kind != driver.Null {
		t.Errorf("no key: %+v", got)
	}
	if got := r.must(t, "SET", k, "v\r\n\x00ü"); got.Kind != driver.Text || got.Text != "OK" {
		t.Errorf("SET: %+v", got)
	}
	if got := r.must(t, "GET", k); got.Kind != driver.Text || got.Text != "v\r\n\x00ü" {
		t.Errorf("GET: %+v", got)
	}
	if got := r.must(t, "SET", k, "w", "NX"); got.Kind != driver.Null {
		t.Errorf("SET NX: %+v", got)
	}
	if got := r.must(t, "INCRBY", r.Key("n"), "-9007199254740991"); got.Kind != driver.Int || got.Int != -9007199254740991 {
		t.Errorf("INCRBY: %+v", got)
	}
	got := r.must(t, "EVAL", "return {1, 'a', {2, false}, {}}", "1", k)
	if got.Kind != driver.Array || len(got.Array) != 4 || got.Array[0].Int != 1 || got.Array[1].Text != "a" ||
		got.Array[2].Array[0].Int != 2 || got.Array[2].Array[1].Kind != driver.Null ||
		got.Array[3].Kind != driver.Array || len(got.Array[3].Array) != 0 {
		t.Errorf("EVAL: %+v", got)
	}
	if got := r.must(t, "CONFIG", "GET", "appendfsync"); len(got.Array) != 2 || got.Array[0].Text != "appendfsync" || got.Array[1].Text == "" {
		t.Errorf("CONFIG GET: %+v", got)
	}
	// Reported whole, with the code first.
	_, err := r.do(t, "LPUSH", k, "x")
	refusal, ok := errors.AsType[*driver.ServerError](err)
	if !ok || refusal.Code() != "WRONGTYPE" || refusal.Text != "WRONGTYPE Operation against a key holding the wrong kind of value" {
		t.Errorf("LPUSH to a string: %v", err)
	}
	err = sends(func() error {
		_, err := r.conn.EvalSHA(t.Context(), "ffffffffffffffffffffffffffffffffffffffff", []string{k}, []string{"a"})
		return err
	})
	if refusal, ok := errors.AsType[*driver.ServerError](err); !ok || refusal.Code() != "NOSCRIPT" {
		t.Errorf("an unknown script: %v", err)
	}
	sha := r.load(t, "return {KEYS[1], ARGV[1], ARGV[2]}")
	err = sends(func() error {
		got, err = r.conn.EvalSHA(t.Context(), sha, []string{k}, []string{"a", ""})
		return err
	})
	if err != nil || len(got.Array) != 3 || got.Array[0].Text != k || got.Array[1].Text != "a" || got.Array[2].Text != "" {
		t.Errorf("a loaded script: %+v, %v", got, err)
	}
	if r.conn.Connections() == 0 {
		t.Error("nothing was connected")
	}
	batcher, ok := r.conn.(driver.Batcher)
	if !ok {
		return
	}
	answers, errs := batcher.Batch(within(t, patience), []string{"SET", k, "x"}, []string{"LPUSH", k, "x"}, []string{"WAIT", "0", "1"})
	if len(answers) != 3 || errs[0] != nil || answers[0].Text != "OK" || errs[2] != nil || answers[2].Kind != driver.Int {
		t.Errorf("a batch: %+v, %v", answers, errs)
	}
	if refusal, ok := errors.AsType[*driver.ServerError](errs[1]); !ok || refusal.Code() != "WRONGTYPE" {
		t.Errorf("a refusal in a batch: %v", errs[1])
	}
}

// Callers leave before the answer, on a link that delays each message by another time: what a later
// call sends on the same key is executed later. A bare pool of connections fails this in most
// tries.
func later(t *testing.T, r *run) {
	base := seed.Of(t)
	r.warm(t)
	r.Proxy.Delay(redistest.Both, 0, 3*time.Millisecond)
	var callers sync.WaitGroup
	var left atomic.Int32
	const tries = 200
	for worker := range uint64(10) {
		callers.Go(func() {
			rng := rand.New(rand.NewPCG(base, worker))
			for i := range tries / 10 {
				key := r.Key(fmt.Sprintf("%d.%d", worker, i))
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(5000))*time.Microsecond)
				if _, err := r.conn.Do(ctx, "SET", key, "mine", "NX", "PX", "60000"); err != nil {
					left.Add(1)
				}
				cancel()
				if _, err := r.do(t, "DEL", key); err != nil {
					t.Errorf("DEL %s: %v", key, err)
				}
			}
		})
	}
	callers.Wait()
	if n := r.direct(t, "DBSIZE"); n != int64(0) {
		t.Errorf("%v of %d keys were set after their deletion", n, tries)
	}
	t.Logf("%d of %d callers left before the answer", left.Load(), tries)
}

// The connection breaks at a command, before or after the server executed it: the caller is told
// that the outcome is not known, and the command is not sent again.
func atMostOnce(t *testing.T, r *run) {
	const text = "return redis.call('INCR', KEYS[1])"
	sha := r.load(t, text)
	ways := map[string]func(key string) error{
		"INCR": func(key string) error {
			_, err := r.conn.Do(within(t, patience), "INCR", key)
			return err
		},
		"EVALSHA": func(key string) error {
			_, err := r.conn.EvalSHA(within(t, patience), sha, []string{key}, nil)
			return err
		},
		"EVAL": func(key string) error {
			_, err := r.conn.Do(within(t, patience), "EVAL", text, "1", key)
			return err
		},
	}
	if b, ok := r.conn.(driver.Batcher); ok {
		ways["INCRBY"] = func(key string) error {
			_, errs := b.Batch(within(t, patience), []string{"INCRBY", key, "1"}, []string{"WAIT", "0", "1"})
			return errs[0]
		}
	}
	for command, send := range ways {
		for action, count := range map[redistest.Action]any{redistest.CutBefore: nil, redistest.CutAfter: "1"} {
			r.warmAgain(t)
			key := r.Key(fmt.Sprint(command, action))
			before := r.Proxy.Stats().Seen[command]
			r.Proxy.OnCommand(func(c redistest.Command) redistest.Action {
				if c.Name() == command {
					return action
				}
				return redistest.Pass
			})
			err := sends(func() error { return send(key) })
			r.Proxy.OnCommand(nil)
			if !unknown(err) {
				t.Errorf("%s: the error of a broken connection is %v", command, err)
			}
			if n := r.direct(t, "GET", key); n != count {
				t.Errorf("%s: executed %v times, want %v", command, n, count)
			}
			if n := r.Proxy.Stats().Seen[command] - before; n != 1 {
				t.Errorf("%s was sent %d times", command, n)
			}
		}
	}
}

// warmAgain makes sure that a connection stands after one broke, which the next commands may have
// to find out first.
func (r *run) warmAgain(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for good := 0; good < 3; {
		_, err := r.conn.Do(within(t, patience), "GET", r.Key("warm"))
		if err == nil {
			good++
			continue
		}
		good = 0
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// Many commands are under way when connections break: each was executed at most
// once, and each caller that was told of success was right.
func atMostOnceAmongMany(t *testing.T, r *run) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	for round := range 10 {
		r.warmAgain(t)
		at := 1 + rng.IntN(50)
		var seen atomic.Int32
		r.Proxy.OnCommand(func(cmd redistest.Command) redistest.Action {
			if cmd.Name() == "INCR" && int(seen.Add(1)) == at {
				return []redistest.Action{redistest.CutBefore, redistest.CutAfter}[round%2]
			}
			return redistest.Pass
		})
		var callers sync.WaitGroup
		var mu sync.Mutex
		outcome := make(map[string]error)
		for i := range 50 {
			callers.Go(func() {
				key := r.Key(fmt.Sprintf("%d.%d", round, i))
				_, err := r.conn.Do(within(t, patience), "INCR", key)
				mu.Lock()
				outcome[key] = err
				mu.Unlock()
			})
		}
		callers.Wait()
		r.Proxy.OnCommand(nil)
		for key, err := range outcome {
			value := r.direct(t, "GET", key)
			switch {
			case value != nil && value != "1":
				t.Errorf("round %d: %s was executed %v times", round, key, value)
			case err == nil && value == nil:
				t.Errorf("round %d: %s was not executed and its caller was told of success", round, key)
			case errors.Is(err, driver.ErrNotSent) && value != nil:
				t.Errorf("round %d: %s was executed and its caller was told that it was not sent", round, key)
			}
		}
	}
}

// A command that was not sent has an error that says so, and the server never hears of it.
func notSent(t *testing.T, r *run) {
	cause := errors.New("the caller's own cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for range 2 { // before a connection stands, and after
		_, err := r.conn.Do(ctx, "SET", r.Key("k"), "v")
		if !errors.Is(err, driver.ErrNotSent) || !errors.Is(err, cause) {
			t.Errorf("ctx was done: %v", err)
		}
		_, err = r.conn.EvalSHA(ctx, "00", []string{r.Key("k")}, nil)
		if !errors.Is(err, driver.ErrNotSent) || !errors.Is(err, cause) {
			t.Errorf("ctx was done: %v", err)
		}
		r.warm(t)
	}
	if n := r.Proxy.Commands(); n["SET"]+n["EVALSHA"] > 0 {
		t.Errorf("sent: %v", n)
	}

	if err := r.Proxy.Refuse(true); err != nil {
		t.Fatal(err)
	}
	refused := r.connect()
	err := driver.ErrNotSent
	for try := 0; try == 0 || unknown(err) && try < 100; try++ {
		// A connection may be accepted just before it would be refused, and then ends.
		_, err = refused.Do(within(t, patience), "SET", r.Key("k"), "v")
	}
	if !errors.Is(err, driver.ErrNotSent) {
		t.Errorf("the connection was refused: %v", err)
	}
	if err := r.Proxy.Refuse(false); err != nil {
		t.Fatal(err)
	}
	r.conn = refused
	r.warmAgain(t) // it tries again by itself
}

// ctx ends the caller's wait, not the command.
func abandoned(t *testing.T, r *run) {
	for try := range 20 { // on a busy machine the connection may be given up for its silence
		r.warm(t)
		key, before := r.Key(fmt.Sprint("k", try)), r.conn.Connections()
		r.Proxy.HoldBack(redistest.Requests, true)
		// Time enough for a busy machine to send it.
		err := sends(func() error { _, err := r.conn.Do(within(t, time.Second), "SET", key, "v"); return err })
		r.Proxy.HoldBack(redistest.Requests, false)
		got := r.must(t, "GET", key)
		if !r.ends && r.conn.Connections() != before {
			continue
		}
		if !unknown(err) {
			t.Errorf("abandoned: %v", err)
		}
		if got.Text != "v" && !(r.ends && got.Kind == driver.Null) {
			t.Errorf("a later command finds %+v", got)
		}
		return
	}
	t.Error("the connection is given up with the command")
}

// A server that answers nothing holds up no caller beyond its ctx, and executes what was sent to it
// once at most.
func hung(t *testing.T, r *run) {
	for try := range 5 { // a busy machine may take long with callers who are not held up
		r.warmAgain(t)
		if leftSoon(t, r, try) {
			return
		}
	}
	t.Error("callers are blocked beyond their ctx")
}

// leftSoon has callers ask a server that answers nothing, and reports whether they left before a connection may have
// been given up for its silence.
func leftSoon(t *testing.T, r *run, try int) (soon bool) {
	t.Helper()
	if err := r.Server.Pause(); err != nil {
		t.Fatal(err)
	}
	const many = 300
	key := func(i int) string { return r.Key(fmt.Sprintf("%d.%d", try, i)) }
	var callers sync.WaitGroup
	for i := range many {
		callers.Go(func() {
			if _, err := r.conn.Do(within(t, 50*time.Millisecond), "INCR", key(i)); err == nil {
				t.Error("a stopped server answered")
			}
		})
	}
	left := make(chan struct{})
	go func() {
		callers.Wait()
		close(left)
	}()
	select {
	case <-left:
		soon = true
	case <-time.After(9 * time.Second):
	}
	if err := r.Server.Resume(); err != nil {
		t.Fatal(err)
	}
	<-left
	if d, ok := r.conn.(driver.Drainer); ok {
		d.Drain("")
	} else {
		r.must(t, "PING")
	}
	for i := range many {
		if n := r.direct(t, "GET", key(i)); n != nil && n != "1" {
			t.Errorf("command %d was executed %v times", i, n)
		}
	}
	return soon
}

// Close ends what is under way, and a later command is not sent.
func closing(t *testing.T, r *run) {
	r.warm(t)
	r.Proxy.BlackHole(redistest.Both, true)
	ended := make(chan error, 1)
	go func() {
		ended <- sends(func() error { _, err := r.conn.Do(context.Background(), "SET", r.Key("k"), "v"); return err })
	}()
	if err := r.Proxy.AwaitCommand(within(t, patience), "SET", 1); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	r.conn.Close()
	t.Logf("closed in the face of a black hole after %v", time.Since(start).Round(time.Millisecond))
	select {
	case err := <-ended:
		if !unknown(err) {
			t.Errorf("a command under way: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("a command outlived Close")
	}
	if _, err := r.conn.Do(within(t, patience), "SET", r.Key("k"), "v"); err == nil {
		t.Error("a closed connection took a command")
	}
	r.conn.Close() // a second time is harmless
}
