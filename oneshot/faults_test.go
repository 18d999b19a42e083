package oneshot_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/vote"
	"github.com/redlatch/redlatch/oneshot"
)

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

// The key was deleted and the reply is lost: a further try finds nothing, and
// that does not mean that it was not ours.
func TestReplyToOneShotReleaseIsLost(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		for name, how := range locktest.Losses() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx, name := t.Context(), t.Name()
				s := w.site(t, locktest.SharedOf(t, binary, 1))
				client := s.open(t)
				locktest.Await(t, "taken", func() bool {
					ok, err := client.Take(ctx, name, "x", 20*time.Second)
					return ok || !locktest.Late(err)
				})
				holderIs(t, client, name, "x", 1, 20*time.Second)
				client.Release(ctx, name+"/before", "x") // else the answer that is lost may be that the script is not there
				loseOnce(s.proxies[0], how, w.decisive)
				ok, err := client.Release(ctx, name, "x")
				if w.name == "valkey 8.1" && ok {
					locktest.AwaitValue(t, s.nodes[0], name, "")
					return // it was asked again within the 1 ms, and found it
				}
				if ok || !errors.Is(err, redlatch.ErrNoQuorum) {
					t.Fatalf("got %t, %v", ok, err)
				}
				if a := locktest.VerdictOf(t, err, 0); a.Verdict != redlatch.VoteUnknown || a.Err == nil {
					t.Errorf("the node's answer is %v", a)
				}
				locktest.AwaitValue(t, s.nodes[0], name, "")
			})
		}
	})
}

// The release was cut off before the server had it: the second try deletes.
func TestOneShotReleaseIsCutOff(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		ctx, name := t.Context(), t.Name()
		s := w.site(t, locktest.SharedOf(t, binary, 1))
		client := s.open(t)
		is(t, true)(client.Take(ctx, name, "x", 20*time.Second))
		loseOnce(s.proxies[0], redistest.CutBefore, w.decisive)
		is(t, true)(client.Release(ctx, name, "x"))
		locktest.AwaitValue(t, s.nodes[0], name, "")
	})
}

// The key was set and the reply is lost: the caller gets an error, and can
// find out.
func TestReplyToTakeIsLost(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		ctx, name := t.Context(), t.Name()
		s := w.site(t, locktest.SharedOf(t, binary, 1))
		client := s.open(t)
		loseOnce(s.proxies[0], redistest.CutAfter, func(c redistest.Command) bool {
			set, _ := locktest.StepOf(c)
			return set == "acquire" || c.Name() == "SET"
		})
		ok, err := client.Take(ctx, name, "x", 20*time.Second)
		if ok || !errors.Is(err, redlatch.ErrNoQuorum) || locktest.VerdictOf(t, err, 0).Verdict != redlatch.VoteUnknown {
			t.Fatalf("got %t, %v", ok, err)
		}
		locktest.AwaitValue(t, s.nodes[0], name, "x")
		is(t, false)(client.Take(ctx, name, "x", 20*time.Second))
		extends(t, true, client, name, "x", 20*time.Second)
		is(t, true)(client.Release(ctx, name, "x"))
	})
}

// The take got no answer in time and is still on its way: neither an extension nor a release says that the lock is
// not held, though another may have it until the take arrives.
func TestWhileTheTakeIsOnItsWay(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		for _, held := range []bool{false, true} {
			t.Run(fmt.Sprintf("held %t", held), func(t *testing.T) {
				t.Parallel()
				w.isOnItsWay(t, binary, held)
			})
		}
	})
}

func (w way) isOnItsWay(t *testing.T, binary string, held bool) {
	ctx, name := t.Context(), t.Name()
	s := w.site(t, locktest.SharedOf(t, binary, 1))
	s.config.NodeTimeout = 200 * time.Millisecond
	client := s.open(t)
	locktest.Await(t, "it is connected", func() bool {
		_, err := client.Release(ctx, name+"/before", "x")
		return err == nil
	})
	arrives := make(chan struct{})
	var struck atomic.Bool
	s.proxies[0].OnCommand(func(c redistest.Command) redistest.Action {
		if set, _ := locktest.StepOf(c); (set == "acquire" || c.Name() == "SET") && struck.CompareAndSwap(false, true) {
			<-arrives
		}
		return redistest.Pass
	})
	if held {
		locktest.Do(t, s.nodes[0], "SET", name, "other", "PX", "60000")
	}
	if ok, err := client.Take(ctx, name, "x", locktest.TTL); ok || !errors.Is(err, redlatch.ErrNoQuorum) {
		t.Errorf("take: %t, %v", ok, err)
	}
	extended, extend := client.Extend(ctx, name, "x", locktest.TTL)
	released, release := client.Release(ctx, name, "x")
	if held {
		locktest.Do(t, s.nodes[0], "DEL", name)
	}
	close(arrives)
	if !struck.Load() || extend == nil || release == nil {
		t.Errorf("extend: %t, %v; release: %t, %v", extended, extend, released, release)
	}
	locktest.Await(t, "it is released", func() bool {
		ok, err := client.Release(ctx, name, "x")
		return ok || err == nil && locktest.Value(t, s.nodes[0], name) == ""
	})
}

// A take that fails takes back what it set, and nothing that was there before it
// under the same id.
func TestFailedTakeUndoesItsOwn(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		ctx, name := t.Context(), t.Name()
		s := w.site(t, locktest.SharedOf(t, binary, 3))
		client := s.open(t)
		for _, holder := range []string{"other", "mine"} {
			for _, server := range s.nodes[:2] {
				locktest.Do(t, server, "SET", name, holder, "PX", "20000")
			}
			is(t, false)(client.Take(ctx, name, "mine", 30*time.Second)) // longer than is waited
			locktest.AwaitValue(t, s.nodes[2], name, "")
			for _, server := range s.nodes[:2] {
				if v := locktest.Value(t, server, name); v != holder {
					t.Errorf("%q is now %q", holder, v)
				}
				locktest.Do(t, server, "DEL", name)
			}
		}
		// One node is not enough to be in the way. The name is another: the last take may not
		// be undone yet on the node that it did not wait for.
		name += "/2"
		locktest.Do(t, s.nodes[1], "SET", name, "other", "PX", "20000")
		is(t, true)(client.Take(ctx, name, "mine", 10*time.Second))
		holderIs(t, client, name, "mine", 1, 10*time.Second)
		is(t, true)(client.Release(ctx, name, "mine"))
		locktest.AwaitValue(t, s.nodes[1], name, "other")
		locktest.Do(t, s.nodes[1], "DEL", name)
	})
}

// A minority that is cut off or hangs is not waited for; a majority is an error.
func TestOneShotWithoutAMinority(t *testing.T) {
	t.Parallel()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			ctx, name := t.Context(), t.Name()
			s := w.site(t, locktest.Shared(t, 5))
			client := s.open(t)
			s.proxies[0].BlackHole(redistest.Both, true)
			if err := s.proxies[1].Refuse(true); err != nil {
				t.Fatal(err)
			}
			s.proxies[1].Cut()
			locktest.Await(t, "taken", func() bool {
				ok, err := client.Take(ctx, name, "x", 20*time.Second)
				return ok && err == nil
			})
			extends(t, true, client, name, "x", 20*time.Second)
			holderIs(t, client, name, "x", 1, 20*time.Second)
			holderIs(t, client, name+"/free", "", 0, 0)
			s.proxies[2].BlackHole(redistest.Both, true)
			for op, call := range map[string]func() error{
				"take":   func() error { _, err := client.Take(ctx, name+"/2", "x", locktest.TTL); return err },
				"extend": func() error { _, err := client.Extend(ctx, name, "x", 20*time.Second); return err },
				"query":  func() error { _, _, err := client.Query(ctx, name); return err },
			} {
				err := call()
				if !errors.Is(err, redlatch.ErrNoQuorum) || locktest.FailureOf(t, err).Op != op {
					t.Errorf("%s: %v", op, err)
				}
			}
			for _, server := range s.nodes[3:] {
				locktest.AwaitValue(t, server, name+"/2", "")
			}
			s.proxies[2].BlackHole(redistest.Both, false)
			locktest.Await(t, "released", func() bool {
				ok, err := client.Release(ctx, name, "x")
				return ok || err == nil
			})
			for _, server := range s.nodes[2:] {
				locktest.AwaitValue(t, server, name, "")
			}
			locktest.Do(t, s.nodes[0], "DEL", name)
			locktest.Do(t, s.nodes[1], "DEL", name)
		})
	}
}

// The key changes hands between WATCH and EXEC, and the connection breaks there:
// what is the other's stays.
func TestWatchedKeyChanges(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for what, then := range map[string]redistest.Action{"change": redistest.Pass, "change and cut": redistest.CutBefore} {
			for _, command := range []string{"MULTI", "DEL", "EXEC"} {
				t.Run(what+" before "+command, func(t *testing.T) {
					t.Parallel()
					ctx, name := t.Context(), t.Name()
					s := way{commands: oneshot.CommandsWatch}.site(t, locktest.SharedOf(t, binary, 1))
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
					if v := locktest.Value(t, s.nodes[0], name); v != "other" || !struck.Load() {
						t.Errorf("the other's key is now %q", v)
					}
					locktest.Do(t, s.nodes[0], "DEL", name)
				})
			}
		}
	})
}

// One node granted a take, another has another holder's key, and the third cannot be asked: somebody has the lock,
// and what was granted is taken back.
func TestTakeOfASplitVote(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		s := w.site(t, locktest.SharedOf(t, binary, 3))
		if err := s.proxies[2].Refuse(true); err != nil {
			t.Fatal(err)
		}
		client := s.open(t)
		again(t, func(t *testing.T, name string) {
			locktest.Do(t, s.nodes[0], "SET", name, "other", "PX", "60000")
			is(t, false)(client.Take(t.Context(), name, "mine", 20*time.Second))
			locktest.AwaitValue(t, s.nodes[1], name, "")
			if v := locktest.Value(t, s.nodes[0], name); v != "other" {
				t.Errorf("the other's is now %q", v)
			}
		})
	})
}

// A node that no call has reached yet says nothing of the lock.
func TestOneShotAtANodeThatWasNeverThere(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		ctx, name := t.Context(), t.Name()
		s := w.site(t, locktest.SharedOf(t, binary, 1))
		if err := s.proxies[0].Refuse(true); err != nil {
			t.Fatal(err)
		}
		for op, call := range map[string]func(caller) (bool, error){
			"take":    func(c caller) (bool, error) { return c.Take(ctx, name, "x", time.Second) },
			"extend":  func(c caller) (bool, error) { return c.Extend(ctx, name, "x", time.Second) },
			"release": func(c caller) (bool, error) { return c.Release(ctx, name, "x") },
		} {
			if ok, err := call(s.open(t)); ok || !errors.Is(err, redlatch.ErrNoQuorum) || locktest.VerdictOf(t, err, 0).Verdict != redlatch.VoteNotSent {
				t.Errorf("%s: %t, %v", op, ok, err)
			}
		}
	})
}

// A node's answer may come when the time for which it is given is over already: nothing is held then, and what was
// taken is taken back.
func TestOneShotIsGrantedTooLate(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		ctx, name := t.Context(), t.Name()
		const ttl = 20 * time.Millisecond
		s := w.site(t, locktest.SharedOf(t, binary, 1))
		client := s.open(t)
		s.proxies[0].OnCommand(func(c redistest.Command) redistest.Action {
			if set, _ := locktest.StepOf(c); set == "acquire" || set == "extend" || c.Name() == "SET" || c.Name() == "EXEC" {
				time.Sleep(2 * ttl)
			}
			return redistest.Pass
		})
		if ok, err := client.Take(ctx, name, "x", ttl); ok || err == nil {
			t.Errorf("take: %t, %v", ok, err)
		}
		locktest.AwaitValue(t, s.nodes[0], name, "")
		locktest.Do(t, s.nodes[0], "SET", name, "x", "PX", "60000")
		if ok, err := client.Extend(ctx, name, "x", ttl); ok || err == nil {
			t.Errorf("extend: %t, %v", ok, err)
		}
	})
}

// sleeper is the clock of a machine that may sleep.
type sleeper struct {
	clock.Clock
	slept atomic.Int64
}

func (s *sleeper) Now() clock.Instant {
	now := s.Clock.Now()
	now.Boot += time.Duration(s.slept.Load())
	return now
}

// What a machine took that then slept for longer than a quarantine allows for is not held, and taken back.
func TestTakeOfAMachineThatSlept(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		s := w.site(t, locktest.SharedOf(t, binary, 3))
		machine := &sleeper{Clock: clock.System}
		client := locktest.OpenIn(t, s.config, hook.Surroundings{Clock: machine})
		shots, err := oneshot.NewWith(client, oneshot.Config{Commands: w.commands})
		if err != nil {
			t.Fatal(err)
		}
		again(t, func(t *testing.T, name string) {
			is(t, true)(shots.Take(t.Context(), name+"/before", "x", locktest.TTL))
		})
		for _, proxy := range s.proxies {
			loseOnce(proxy, redistest.Pass, func(c redistest.Command) bool {
				set, _ := locktest.StepOf(c)
				if set != "acquire" && c.Name() != "SET" {
					return false
				}
				machine.slept.Add(int64(vote.LongestAttempt))
				return true
			})
		}
		const ttl = 30 * time.Second // ends what a node has set too late on a busy machine while that is awaited
		if ok, err := shots.Take(t.Context(), t.Name(), "x", ttl); ok || err == nil {
			t.Fatalf("got %t, %v", ok, err)
		}
		for _, server := range s.nodes {
			locktest.AwaitValue(t, server, t.Name(), "")
		}
	})
}

// Where another server has come in a server's place, what that one still has is no vote, though a connection for
// transactions to it stands.
func TestExtendWhereTheServerWasReplaced(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		ctx, name := t.Context(), t.Name()
		former, next := redistest.New(t, redistest.Options{Binary: binary}), redistest.New(t, redistest.Options{Binary: binary})
		s := way{commands: oneshot.CommandsWatch}.site(t, []*redistest.Server{former})
		client := s.open(t)
		is(t, true)(client.Take(ctx, name, "x", locktest.TTL))
		for range 4 { // as many as there are connections for transactions
			extends(t, true, client, name, "x", locktest.TTL)
		}
		s.proxies[0].Retarget(next.Addr())
		loseOnce(s.proxies[0], redistest.CutBefore, func(c redistest.Command) bool { return c.Name() == "EVAL" }) // of the Query
		locktest.Await(t, "it is connected to the next", func() bool {
			id, _, err := client.Query(ctx, name)
			return err == nil && id == ""
		})
		locktest.Do(t, next, "SET", name, "other", "PX", "60000")
		if ok, err := client.Extend(ctx, name, "x", locktest.TTL); ok || err != nil && !locktest.Late(err) {
			t.Errorf("two hold it: %t, %v", ok, err)
		}
	})
}

// A client that does not read the admission when it votes learns all the same that the deployment has other
// settings now.
func TestOneShotAfterAReset(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, w way, binary string) {
		ctx, name := t.Context(), t.Name()
		s := w.site(t, []*redistest.Server{redistest.New(t, redistest.Options{Binary: binary})})
		client := s.open(t)
		again(t, func(t *testing.T, name string) { is(t, true)(client.Take(ctx, name, "x", locktest.TTL)) })
		locktest.Do(t, s.nodes[0], "SET", name, "x", "PX", "60000")
		changed := s.config
		changed.MaxTTL *= 2
		if err := locktest.Open(t, changed).Reset(ctx, "n0"); err != nil {
			t.Fatal(err)
		}
		for op, call := range map[string]func() error{
			"take":   func() error { _, err := client.Take(ctx, name+"/2", "x", locktest.TTL); return err },
			"extend": func() error { _, err := client.Extend(ctx, name, "x", locktest.TTL); return err },
		} {
			locktest.Await(t, op+" is refused", func() bool {
				err := call()
				return errors.Is(err, redlatch.ErrInvalid) && locktest.VerdictOf(t, err, 0).Verdict == redlatch.VoteRefused
			})
		}
	})
}

// A call whose ctx ends while a node is asked returns what ended it.
func TestOneShotEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := locktest.Shared(t, 1)[0]
	for op, call := range map[string]func(caller, context.Context) error{
		"take": func(c caller, ctx context.Context) error {
			_, err := c.Take(ctx, t.Name(), "x", time.Second)
			return err
		},
		"extend": func(c caller, ctx context.Context) error {
			_, err := c.Extend(ctx, t.Name(), "x", time.Second)
			return err
		},
		"release": func(c caller, ctx context.Context) error { _, err := c.Release(ctx, t.Name(), "x"); return err },
		"query":   func(c caller, ctx context.Context) error { _, _, err := c.Query(ctx, t.Name()); return err },
		"inspect": func(c caller, ctx context.Context) error { _, err := c.Inspect(ctx, t.Name()); return err },
	} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, server.Addr())
			c := locktest.Config(proxy.URL())
			client := newCaller(t, c, oneshot.CommandsAuto)
			ctx, cancel := context.WithCancelCause(t.Context())
			over, reason := make(chan struct{}), errors.New("the reason")
			proxy.OnCommand(func(redistest.Command) redistest.Action {
				cancel(reason)
				<-over
				return redistest.Pass
			})
			if err := call(client, ctx); !errors.Is(err, reason) || errors.Is(err, redlatch.ErrNoQuorum) {
				t.Errorf("got %v", err)
			}
			close(over)
		})
	}
}
