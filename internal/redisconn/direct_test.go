package redisconn

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redistest"
)

// inTime is for a command that nobody answers: long enough for a busy machine to send it.
const inTime = time.Second

// hasty returns a connection that has a direct connection.
func hasty(t *testing.T, url string) Hasty {
	t.Helper()
	h := NewHasty(connect(t, url))
	must(t, h, "PING")
	if h.fast.Load() == nil {
		t.Fatal("no direct connection was made")
	}
	return h
}

// at asks the server, not through a connection under test.
func at(t *testing.T, server *redistest.Server, args ...string) any {
	t.Helper()
	reply, err := server.Do(args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return reply
}

// ids returns the server's numbers of the pipeline's connection and of that which a
// command that is alone goes by.
func (h Hasty) ids(t *testing.T) (pipeline, alone int64) {
	t.Helper()
	return must(t, h.Conn, "CLIENT", "ID").Int, must(t, h, "CLIENT", "ID").Int
}

// What is alone goes by the direct connection, and what comes while somebody waits by the
// pipeline.
func TestDirectIsForOne(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	h := hasty(t, server.URL())
	pipeline, alone := h.ids(t)
	if pipeline == alone {
		t.Fatal("what is alone goes by the pipeline")
	}
	blocked := make(chan error, 1)
	go func() {
		_, err := h.Do(within(t, patience), "BLPOP", "gate", "0")
		blocked <- err
	}()
	for !h.fast.Load().busy.Load() {
		time.Sleep(time.Millisecond)
	}
	if id := must(t, h, "CLIENT", "ID").Int; id != pipeline {
		t.Errorf("a second command went by connection %d, the pipeline is %d", id, pipeline)
	}
	at(t, server, "RPUSH", "gate", "open")
	if err := <-blocked; err != nil {
		t.Error(err)
	}
	if id := must(t, h, "CLIENT", "ID").Int; id != alone {
		t.Errorf("then one went by connection %d, the direct connection is %d", id, alone)
	}
}

// Nothing goes by the direct connection while the pipeline may have something under way that
// nobody waits for, whatever has been answered that was sent before.
func TestDirectWaitsForThePipeline(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	h := hasty(t, proxy.URL())
	pipeline, _ := h.ids(t)
	proxy.HoldBack(redistest.Requests, true)
	earlier := make(chan error, 1)
	go func() {
		_, err := h.Conn.Do(within(t, patience), "PING")
		earlier <- err
	}()
	for h.sent.Load() == 0 || h.waiting.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	err := sends(func() error { _, err := h.Conn.Do(within(t, inTime), "SET", "k", "v"); return err })
	if err == nil || errors.Is(err, driver.ErrNotSent) {
		t.Fatalf("what was held back: %v", err)
	}
	proxy.HoldBack(redistest.Requests, false)
	if err := <-earlier; err != nil {
		t.Fatal(err)
	}
	if h.alone() != nil {
		t.Error("a direct connection beside an abandoned command")
	}
	if id := must(t, h, "CLIENT", "ID").Int; id != pipeline {
		t.Errorf("the next command went by connection %d, the pipeline is %d", id, pipeline)
	}
	if id := must(t, h, "CLIENT", "ID").Int; id == pipeline {
		t.Error("no direct connection after the pipeline had answered a later command")
	}
}

// What goes by the pipeline comes after a command that was abandoned on the direct connection, which
// never is executed if it was not before.
func TestPipelineComesAfterTheDirect(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	h := hasty(t, proxy.URL())
	sha := at(t, server, "SCRIPT", "LOAD", "return redis.call('SET', KEYS[1], ARGV[1])").(string)
	for name, later := range map[string]func(context.Context) error{
		"one": func(ctx context.Context) error { _, err := h.Conn.Do(ctx, "SET", "k", "later"); return err },
		"a batch": func(ctx context.Context) error {
			_, errs := h.Batch(ctx, []string{"SET", "k", "later"})
			return errs[0]
		},
		"watching": func(ctx context.Context) error {
			_, _, err := h.EvalSHAWatching(ctx, sha, []string{"k"}, []string{"later"})
			return err
		},
	} {
		for h.fast.Load() == nil {
			must(t, h, "DEL", "k")
		}
		held := make(chan struct{})
		proxy.OnCommand(func(c redistest.Command) redistest.Action {
			if c.Name() == "APPEND" {
				<-held
			}
			return redistest.Pass
		})
		open := proxy.Stats().Open
		err := sends(func() error { _, err := h.Do(within(t, inTime), "APPEND", "k", "earlier"); return err })
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrNotSent) {
			t.Fatalf("%s: what was held back: %v", name, err)
		}
		if h.before.Load() == nil {
			t.Fatal("it was not on the direct connection")
		}
		if err := later(within(t, patience)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if h.before.Load() != nil {
			t.Errorf("%s: it is to be closed once more", name)
		}
		close(held)
		if err := proxy.Await(within(t, patience), func(s redistest.Stats) bool { return s.Open < open }); err != nil {
			t.Fatal(err)
		}
		if got := must(t, h.Conn, "GET", "k"); got.Text != "later" {
			t.Errorf("%s: then the value is %q", name, got.Text)
		}
	}
}

// A caller's end is heard while a server that hangs takes nothing in, and what it has of
// the command is not executed.
func TestDirectToOneThatDoesNotRead(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	h := hasty(t, server.URL())
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	out, value := make(chan error, 1), strings.Repeat("x", 32<<20)
	go func() {
		out <- sends(func() error { _, err := h.Do(within(t, inTime), "SET", "k", value); return err })
	}()
	select {
	case err := <-out:
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrNotSent) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the caller still waits")
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	must(t, h.Conn, "PING")
	if got := must(t, h.Conn, "STRLEN", "k"); got.Int != 0 {
		t.Errorf("%d bytes were set", got.Int)
	}
}

// What this machine has yet to send of a command is not sent when the direct connection is given up: the
// server would execute it after what comes by the next pipeline. Not parallel: a server that another test starts has
// copies of this process's connections until it executes its program, and none is closed before.
func TestDirectIsGivenUpUnsent(t *testing.T) {
	server := redistest.New(t)
	h := hasty(t, server.URL())
	_, alone := h.ids(t)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	value := strings.Repeat("x", 1<<20) // more than the server takes in while it hangs, and no more than this machine keeps for it
	if _, err := h.Do(within(t, inTime), "SET", "k", value); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	h.leave(func(string) bool { return true }) // as when the pipeline is not answered for long
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	for at(t, server, "CLIENT", "LIST", "ID", strconv.FormatInt(alone, 10)) != "" {
		time.Sleep(time.Millisecond)
	}
	if n := at(t, server, "STRLEN", "k"); n != int64(0) {
		t.Errorf("then %v bytes were set", n)
	}
}

// TLS too has its tickets behind it when the direct connection is first used.
func TestDirectOverTLS(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{TLS: true})
	o, _, err := Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	o.Secure(server.TLSConfig())
	h := NewHasty(open(t, o))
	must(t, h, "PING")
	pipeline, alone := h.ids(t)
	for range 3 {
		if id := must(t, h, "CLIENT", "ID").Int; id != alone || id == pipeline {
			t.Fatalf("by connection %d, the direct connection is %d, the pipeline %d", id, alone, pipeline)
		}
	}
}

// Where connections may not be closed there is no direct connection.
func TestNoDirectWithoutKill(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	at(t, server, "ACL", "SETUSER", "meek", "on", ">secret", "~*", "&*", "+@all", "-client|kill")
	h := NewHasty(connect(t, "redis://meek:secret@"+server.Addr()))
	must(t, h, "PING")
	if h.fast.Load() != nil {
		t.Error("a direct connection that cannot be closed")
	}
}

// Where there can be none, that is not found out again and again.
func TestDirectIsNotTriedAtOnceAgain(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	at(t, server, "ACL", "SETUSER", "meek", "on", ">secret", "~*", "&*", "+@all", "-client|kill")
	sha := at(t, server, "SCRIPT", "LOAD", "return 1").(string)
	proxy := redistest.NewProxy(t, server.Addr())
	d := NewDirect(connect(t, "redis://meek:secret@"+proxy.Addr())).(*Direct)
	const tries = 32
	for range tries {
		for range fewScripts {
			if _, err := d.EvalSHA(within(t, patience), sha, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		d.following.Wait()
	}
	if made := proxy.Stats().Accepted; made > tries/4 {
		t.Errorf("%d connections for %d scripts", made, tries*fewScripts)
	}
}

// A direct connection that the server has closed is found out before anything is sent.
func TestDirectThatHasEnded(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	h := hasty(t, proxy.URL())
	pipeline, alone := h.ids(t)
	open := proxy.Stats().Open
	at(t, server, "CLIENT", "KILL", "ID", strconv.FormatInt(alone, 10))
	if err := proxy.Await(within(t, patience), func(s redistest.Stats) bool { return s.Open < open }); err != nil {
		t.Fatal(err)
	}
	for i, x := 0, h.fast.Load(); x.wire.silent(); i++ {
		if i > 20_000 {
			t.Fatal("an end that is not seen")
		}
		time.Sleep(time.Millisecond)
	}
	if id := must(t, h, "CLIENT", "ID").Int; id != pipeline {
		t.Errorf("the next command went by connection %d, the pipeline is %d", id, pipeline)
	}
	if n := h.Connections(); n != 1 {
		t.Errorf("the pipeline was renewed: %d connections made and broken", n)
	}
}

// There is no direct connection to another server than the pipeline's, nor before there is
// something to gain, nor where there is none wanted.
func TestDirectIsNotTaken(t *testing.T) {
	t.Parallel()
	server, other := redistest.New(t), redistest.New(t)
	sha := at(t, server, "SCRIPT", "LOAD", "return 1").(string)
	for what, want := range map[string]struct {
		scripts, accepted int
		elsewhere         bool
	}{
		"elsewhere": {scripts: fewScripts, accepted: 2, elsewhere: true},
		"too few":   {scripts: fewScripts - 1, accepted: 1},
		"taken":     {scripts: fewScripts, accepted: 2},
	} {
		t.Run(what, func(t *testing.T) {
			proxy := redistest.NewProxy(t, server.Addr())
			d := NewDirect(connect(t, proxy.URL())).(*Direct)
			for i := range want.scripts {
				if i == 1 && want.elsewhere {
					proxy.Retarget(other.Addr())
				}
				if _, err := d.EvalSHA(within(t, patience), sha, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			d.following.Wait()
			if taken := d.fast.Load() != nil; taken != (what == "taken") {
				t.Errorf("there is a direct connection: %t", taken)
			}
			d.Close()
			if s := proxy.Stats(); s.Accepted != want.accepted {
				t.Errorf("%d connections, want %d", s.Accepted, want.accepted)
			}
		})
	}
}
