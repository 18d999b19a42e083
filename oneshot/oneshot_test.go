package oneshot_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

func TestOneShot(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		for _, n := range []int{1, 3, 5} {
			t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
				t.Parallel()
				s := w.site(t, locktest.SharedOf(t, binary, n))
				again(t, s.serves)
			})
		}
	})
}

// Without a proxy in between, a server's own commands are used where it has them.
func TestNativeCommandsOfTheServer(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := locktest.SharedOf(t, binary, 1)[0]
		client := newCaller(t, locktest.Config(server.URL()), oneshot.CommandsNative)
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
	func() {
		defer func() {
			if said, _ := recover().(string); !strings.HasPrefix(said, "oneshot: New has no *redlatch.Client") {
				t.Errorf("without a client: %q", said)
			}
		}()
		oneshot.New(nil)
	}()
	server := locktest.Shared(t, 1)[0]
	client := newCaller(t, locktest.Config(server.URL()), oneshot.CommandsAuto)
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
	// fails expects each call to return the error.
	fails := func(what string, ctx context.Context, id string, want error) {
		t.Helper()
		for op, call := range map[string]func() (bool, error){
			"take":    func() (bool, error) { return client.Take(ctx, name, id, time.Second) },
			"extend":  func() (bool, error) { return client.Extend(ctx, name, id, time.Second) },
			"release": func() (bool, error) { return client.Release(ctx, name, id) },
		} {
			if ok, err := call(); ok || !errors.Is(err, want) {
				t.Errorf("%s: %s: %t, %v", what, op, ok, err)
			}
		}
	}
	for _, id := range []string{"", strings.Repeat("x", 513), "redlatch:shared", "redlatch:shared 7"} {
		fails(fmt.Sprintf("id %.10q", id), ctx, id, redlatch.ErrInvalid)
	}
	if _, err := client.Release(ctx, "", "x"); !errors.Is(err, redlatch.ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
	if v := locktest.Value(t, server, name); v != "" {
		t.Errorf("set all the same: %q", v)
	}
	for _, id := range []string{"a b\r\n\x00ü", strings.Repeat("x", 512)} { // any bytes are an id
		is(t, true)(client.Take(ctx, name, id, 5*time.Second))
		is(t, true)(client.Release(ctx, name, id))
	}

	for _, commands := range []oneshot.Commands{oneshot.CommandsNative, oneshot.CommandsWatch, oneshot.CommandsWatch + 1} {
		c := locktest.Config(server.URL())
		c.NoQuarantine = commands > oneshot.CommandsWatch
		if _, err := oneshot.NewWith(locktest.Open(t, c), oneshot.Config{Commands: commands}); !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "Config.Commands") {
			t.Errorf("commands %d are refused with %v", commands, err)
		}
	}
	locktest.Do(t, server, "SET", name, "x", "PX", "60000")
	ended := locktest.Within(t, 0)
	<-ended.Done()
	fails("ctx is done", ended, "x", ended.Err())
	client.locks.Close()
	fails("closed", ctx, "x", redlatch.ErrClosed)
	if v := locktest.Value(t, server, name); v != "x" {
		t.Errorf("a release was sent all the same: the key has %q", v)
	}
	locktest.Do(t, server, "DEL", name)
}

func TestOneShotWrongType(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		ctx, name := t.Context(), t.Name()
		s := w.site(t, locktest.SharedOf(t, binary, 3))
		client := s.open(t)
		for _, server := range s.nodes[:2] {
			locktest.Do(t, server, "RPUSH", name, "x")
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
		locktest.AwaitValue(t, s.nodes[2], name, "")
		for _, server := range s.nodes[:2] {
			if n := locktest.Do(t, server, "LLEN", name); n != int64(1) {
				t.Errorf("the list has %v elements", n)
			}
			locktest.Do(t, server, "DEL", name)
		}
	})
}

// A lock that has more time left than it is extended by is not shortened.
func TestExtendDoesNotShorten(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		if w.commands == oneshot.CommandsNative {
			t.Skip("SET IFEQ sets the TTL")
		}
		s := w.site(t, locktest.SharedOf(t, binary, 1))
		shots := s.open(t)
		is(t, true)(shots.Take(t.Context(), t.Name(), "id", locktest.TTL))
		extends(t, true, shots, t.Name(), "id", time.Second)
		if left := locktest.Remaining(t, s.nodes[0], t.Name()); left <= time.Second {
			t.Errorf("%v are left", left)
		}
		is(t, true)(shots.Release(t.Context(), t.Name(), "id"))
	})
}

// A key that somebody has made persistent expires again once its holder has extended it, whatever the commands.
func TestExtensionEndsAPersistentKey(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		s := w.site(t, locktest.SharedOf(t, binary, 1))
		again(t, func(t *testing.T, name string) {
			client := s.open(t)
			is(t, true)(client.Take(t.Context(), name, "x", 10*time.Second))
			locktest.Do(t, s.nodes[0], "PERSIST", name)
			extends(t, true, client, name, "x", 10*time.Second)
			if left := locktest.Remaining(t, s.nodes[0], name); left <= 0 {
				t.Errorf("the key expires in %v", left)
			}
		})
	})
}

// Users who may run no script: commands where the quarantine is off, an error that
// says so where it is on.
func TestOneShotWithoutScripts(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary, Users: []string{
			"noscripts on >secret ~* +@all -@scripting",
			"noevalsha on >secret ~* +@all -evalsha",
			"least on >secret ~job* -@all +set +get +pttl +del +pexpire +watch +multi +exec",
		}})
		for _, user := range []string{"noscripts", "noevalsha", "least"} {
			t.Run(user, func(t *testing.T) {
				client := newCaller(t, locktest.Config(server.URLAs(user, "secret")), oneshot.CommandsAuto)
				again(t, func(t *testing.T, name string) {
					ctx, name := t.Context(), "job "+name
					is(t, true)(client.Take(ctx, name, "x", 20*time.Second))
					is(t, false)(client.Take(ctx, name, "y", 20*time.Second))
					extends(t, false, client, name, "y", 20*time.Second)
					extends(t, true, client, name, "x", 20*time.Second)
					holderIs(t, client, name, "x", 1, 20*time.Second)
					for holder, err := range client.locks.Observe(ctx, name) {
						if denied := user == "least"; (err != nil) != denied || !denied && holder.ID != "x" { // which may not use MGET
							t.Errorf("observed: %q, %v", holder.ID, err)
						}
						break
					}
					is(t, false)(client.Release(ctx, name, "y"))
					is(t, true)(client.Release(ctx, name, "x"))
					locktest.AwaitValue(t, server, name, "") // SET IFEQ takes 1 ms
					if _, err := locktest.TryInTime(t, client.locks, name); !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "NOPERM") {
						t.Errorf("lock: %v", err)
					}
				})

				c := locktest.Config(server.URLAs(user, "secret"))
				c.NoQuarantine = false
				_, err := newCaller(t, c, oneshot.CommandsAuto).Take(t.Context(), "job "+user, "x", 20*time.Second)
				if !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "NoQuarantine") || !strings.Contains(err.Error(), "NOPERM") {
					t.Errorf("with the quarantine on: %v", err)
				}
			})
		}
	})
}

// A user who may set the key and not read it learns that somebody has it, though not who.
func TestTakeByAUserWhoMayNotRead(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary, Users: []string{"blind on >secret ~job* -@all +set"}})
		client := newCaller(t, locktest.Config(server.URLAs("blind", "secret")), oneshot.CommandsNative)
		again(t, func(t *testing.T, name string) {
			is(t, true)(client.Take(t.Context(), "job "+name, "x", locktest.TTL))
			is(t, false)(client.Take(t.Context(), "job "+name, "y", locktest.TTL))
		})
	})
}

// A permission that is given while the client lives counts, as it does for connections that are there.
func TestOneShotIsPermittedLater(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		ctx := t.Context()
		server := redistest.New(t, redistest.Options{Binary: binary, Users: []string{"later on >secret ~* +@all -@scripting"}})
		client := newCaller(t, locktest.Config(server.URLAs("later", "secret")), oneshot.CommandsScript)
		if _, err := client.Take(ctx, t.Name(), "x", locktest.TTL); !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("not permitted: %v", err)
		}
		if _, err := server.Do("ACL", "SETUSER", "later", "+@scripting"); err != nil {
			t.Fatal(err)
		}
		locktest.Await(t, "it is taken", func() bool { // a node that could not be inspected rests for a while
			taken, err := client.Take(ctx, t.Name(), "x", locktest.TTL)
			return taken && err == nil
		})
		is(t, true)(client.Release(ctx, t.Name(), "x"))
	})
}

// Where MULTI is refused nothing is sent that belongs into the transaction: the server would execute it,
// whatever has happened to the key since.
func TestTransactionIsRefused(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		ctx := t.Context()
		server := redistest.New(t, redistest.Options{Binary: binary, Users: []string{"nomulti on >secret ~* +@all -multi"}})
		client := newCaller(t, locktest.Config(server.URLAs("nomulti", "secret")), oneshot.CommandsWatch)
		is(t, true)(client.Take(ctx, t.Name(), "x", locktest.TTL))
		if _, err := client.Release(ctx, t.Name(), "x"); !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "'multi'") {
			t.Errorf("got %v", err)
		}
		if value := locktest.Value(t, server, t.Name()); value != "x" {
			t.Errorf("the key has %q", value)
		}
	})
}

// A user who may not use one name's key may use another's, by the same commands.
func TestOneShotKeyIsDenied(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		ctx := t.Context()
		server := redistest.New(t, redistest.Options{Binary: binary, Users: []string{"limited on >secret ~ours* ~redlatch:* +@all"}})
		client := newCaller(t, locktest.Config(server.URLAs("limited", "secret")), oneshot.CommandsAuto)
		is(t, true)(client.Take(ctx, "ours", "x", locktest.TTL))
		denied := func(step func() (bool, error)) {
			t.Helper()
			var err error
			locktest.Await(t, "the server has answered", func() bool { // WATCH has a connection of its own, which may take too long
				_, err = step()
				return !errors.Is(err, redlatch.ErrNoQuorum)
			})
			if !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "NOPERM") {
				t.Errorf("got %v", err)
			}
		}
		denied(func() (bool, error) { return client.Take(ctx, "theirs", "x", locktest.TTL) })
		is(t, true)(client.Take(ctx, "ours too", "x", locktest.TTL))
		denied(func() (bool, error) { return client.Extend(ctx, "theirs", "x", locktest.TTL) })
		extends(t, true, client, "ours", "x", locktest.TTL)
		denied(func() (bool, error) { return client.Release(ctx, "theirs", "x") })
		is(t, true)(client.Release(ctx, "ours", "x"))
		is(t, true)(client.Release(ctx, "ours too", "x"))
	})
}

// A node that has just started may have forgotten locks.
func TestTakeAtANodeNotAdmitted(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	for _, commands := range []oneshot.Commands{oneshot.CommandsAuto, oneshot.CommandsScript} {
		c := locktest.Config(server.URL())
		c.NoQuarantine = false
		client := newCaller(t, c, commands)
		if ok, err := client.Take(t.Context(), "x", "id", 10*time.Second); ok || !errors.Is(err, redlatch.ErrNotAdmitted) {
			t.Fatalf("got %t, %v", ok, err)
		}
		if err := client.locks.Admit(t.Context(), c.Nodes[0]); err != nil {
			t.Fatal(err)
		}
		is(t, true)(client.Take(t.Context(), "x", "id", 10*time.Second))
		extends(t, true, client, "x", "id", 20*time.Second)
		is(t, true)(client.Release(t.Context(), "x", "id"))
	}
}

// Several clients take and release by turns, and no two hold at once.
func TestOneShotExcludes(t *testing.T) {
	t.Parallel()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			ctx, name := t.Context(), t.Name()
			s := w.site(t, locktest.Shared(t, 3))
			var inside, turns atomic.Int32
			var all sync.WaitGroup
			for range 3 {
				client := s.openAgain(t)
				all.Go(func() {
					for try := 0; turns.Load() < 20; try++ {
						id := fmt.Sprintf("%p-%d", client.Client, try)
						held, err := client.Take(ctx, name, id, 20*time.Second)
						if locktest.Late(err) {
							continue
						}
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
						if ok, err := client.Release(ctx, name, id); (!ok || err != nil) && !locktest.Late(err) {
							t.Errorf("release: %t, %v", ok, err)
							return
						}
					}
				})
			}
			all.Wait()
			for _, server := range s.nodes {
				locktest.AwaitValue(t, server, name, "")
			}
		})
	}
}

// A key that a node sets when the take is released already does not stay.
func TestReleaseRightAfterTake(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	c := locktest.Config(nodes[0].URL(), nodes[1].URL(), nodes[2].URL())
	client := newCaller(t, c, oneshot.CommandsAuto)
	for i := range 500 { // one in a hundred, or so, is late on some node
		name := fmt.Sprint(t.Name(), i)
		if taken, err := client.Take(t.Context(), name, "x", locktest.TTL); !taken || err != nil {
			t.Fatal(taken, err)
		}
		if released, err := client.Release(t.Context(), name, "x"); !released || err != nil {
			t.Fatal(released, err)
		}
	}
	client.locks.Close()
	for i := range 500 {
		for _, s := range nodes {
			if name := fmt.Sprint(t.Name(), i); locktest.Value(t, s, name) != "" {
				t.Errorf("%s stays on %s", name, s.Addr())
			}
		}
	}
}

// Who waits in Lock gets what was taken and released by one-shot calls, long
// before its TTL is over.
func TestLockWaitsForATake(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		ctx, name := t.Context(), t.Name()
		s := w.site(t, locktest.SharedOf(t, binary, 3))
		taker, waiter := s.open(t), s.openAgain(t)
		is(t, true)(taker.Take(ctx, name, "x", 30*time.Second))
		waits, got := make(chan struct{}), make(chan error, 1)
		stands := sync.OnceFunc(func() { close(waits) })
		limited := locktest.Within(t, locktest.Patience)
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
