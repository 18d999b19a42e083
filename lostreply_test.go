package redlatch_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// wire is what went over one proxy: how often each step was sent for each
// holder id, and what is to be done about the next step of one kind.
type wire struct {
	proxy *redistest.Proxy

	mu     sync.Mutex // guards what follows
	sent   map[string]int
	strike string // the step whose reply is to be lost, once
	how    redistest.Action
	struck chan struct{}
}

func tap(p *redistest.Proxy) *wire {
	w := &wire{proxy: p, sent: make(map[string]int)}
	p.OnCommand(w.see)
	return w
}

func taps(proxies []*redistest.Proxy) []*wire {
	wires := make([]*wire, len(proxies))
	for i, p := range proxies {
		wires[i] = tap(p)
	}
	return wires
}

// step returns the step and holder id of a script's command, "" for any other.
// A release has no step argument: its script does nothing else.
func step(c redistest.Command) (name, id string) {
	if c.Name() != "EVALSHA" && c.Name() != "EVAL" || len(c.Args) < 6 {
		return "", ""
	}
	keys := int(c.Args[2][0] - '0')
	args := c.Args[3+keys:]
	switch {
	case len(args) < 2:
	case slices.Contains([]string{script.Releasing.SHA, script.Releasing.Text}, c.Args[1]):
		return "release", args[0]
	case slices.Contains([]string{"acquire", "extend", "confirm", "repair"}, args[0]):
		return args[0], args[1]
	}
	return "", ""
}

func (w *wire) see(c redistest.Command) redistest.Action {
	name, id := step(c)
	if name == "" {
		return redistest.Pass
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent[name+" "+id]++
	if name == w.strike {
		w.strike = ""
		close(w.struck)
		return w.how
	}
	return redistest.Pass
}

// lose has the next reply to that step lost, and returns what is closed then.
func (w *wire) lose(step string, how redistest.Action) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.strike, w.how, w.struck = step, how, make(chan struct{})
	return w.struck
}

// count returns how many commands of that step were sent.
func (w *wire) count(step string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := 0
	for what, n := range w.sent {
		if strings.HasPrefix(what, step+" ") {
			count += n
		}
	}
	return count
}

// checkOnce expects that no step that gives something was sent twice.
func (w *wire) checkOnce(t *testing.T, steps ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for what, n := range w.sent {
		for _, s := range steps {
			if n > 1 && strings.HasPrefix(what, s+" ") {
				t.Errorf("sent %d times: %s", n, what)
			}
		}
	}
}

// how a reply is lost.
func losses() map[string]redistest.Action {
	return map[string]redistest.Action{"cut": redistest.CutAfter, "silence": redistest.DropReply}
}

// The server acquires and its reply is lost, on so many nodes that there is no
// quorum: the try fails, its records go, and the next try, under its own id,
// holds, long before any TTL is over. Nothing is sent twice.
func TestReplyToAcquireIsLost(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		for name, how := range losses() {
			t.Run(fmt.Sprintf("N=%d %s", n, name), func(t *testing.T) {
				t.Parallel()
				nodes := shared(t, n)
				proxies := redistest.Proxies(t, nodes)
				client := open(t, config(proxyURLs(proxies)...))
				wires := taps(proxies)
				for _, w := range wires[:n/2+1] {
					w.lose("acquire", how)
				}
				lock, err := client.TryLock(t.Context(), t.Name())
				if lock != nil || !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrHeld) {
					t.Fatalf("held %t, %v", lock != nil, err)
				}
				for _, a := range failureOf(t, err).Nodes[:n/2+1] {
					if a.Verdict != redlatch.VoteUnknown || a.Err == nil {
						t.Errorf("a lost reply is %v", a)
					}
				}
				// A connection that lost a reply stays silent.
				for _, p := range proxies {
					p.DropReplies(true)
					p.DropReplies(false)
				}
				for _, s := range nodes {
					awaitValue(t, s, t.Name(), "")
				}
				// Waiting takes care of it by itself.
				for _, w := range wires[:n/2+1] {
					w.lose("acquire", redistest.CutAfter)
				}
				lock, err = client.Lock(within(t, patience/2), t.Name())
				if err != nil {
					t.Fatal(err)
				}
				unlock(t, lock)
				for _, s := range nodes {
					awaitValue(t, s, t.Name(), "")
				}
				for _, w := range wires {
					w.checkOnce(t, "acquire", "confirm", "extend", "repair")
				}
			})
		}
	}
}

// The reply is lost on a minority: nobody notices.
func TestReplyOfAMinorityIsLost(t *testing.T) {
	t.Parallel()
	for name, how := range losses() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := shared(t, 3)
			proxies := redistest.Proxies(t, nodes)
			client := open(t, config(proxyURLs(proxies)...))
			w := tap(proxies[1])
			struck := w.lose("acquire", how)
			lock := tryLock(t, client, t.Name())
			<-struck
			unlock(t, lock)
			proxies[1].Cut()
			for _, s := range nodes {
				awaitValue(t, s, t.Name(), "")
			}
			w.checkOnce(t, "acquire", "confirm", "extend", "repair")
		})
	}
}

// The server deletes and its reply is lost. The caller is not told that it is
// still held, nor that it was not its own; the deletion is made sure of; and
// when another has the lock by then, nothing happens to it.
func TestReplyToReleaseIsLost(t *testing.T) {
	t.Parallel()
	for name, how := range losses() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := shared(t, 1)[0]
			proxy := redistest.NewProxy(t, server.Addr())
			c := config(proxy.URL())
			client, other := open(t, c), open(t, through(c, server.URL()))
			w := tap(proxy)
			unlock(t, tryLock(t, client, t.Name())) // the server has the script from then on
			lock := tryLock(t, client, t.Name())
			w.lose("release", how)
			err := lock.Unlock(t.Context())
			if !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrLost) {
				t.Errorf("unlock: %v", err)
			}
			if !errors.Is(lock.Err(), redlatch.ErrReleased) {
				t.Errorf("the lock is %v", lock.Err())
			}
			next := tryLock(t, other, t.Name()) // it was deleted
			mine := value(t, server, t.Name())
			proxy.Cut()
			// It is sent once more, under the first one's id, and finds nothing.
			await(t, "the release is made sure of", func() bool { return w.count("release") >= 2 })
			if got := value(t, server, t.Name()); got != mine || next.Err() != nil {
				t.Errorf("the next holder's record is %q, want %q; its lock is %v", got, mine, next.Err())
			}
			unlock(t, next)
		})
	}
}

// The server extends and its reply is lost: the extension is not relied on, and
// the lock is held as long as it was.
func TestReplyToExtendIsLost(t *testing.T) {
	t.Parallel()
	for name, how := range losses() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := shared(t, 1)[0]
			proxy := redistest.NewProxy(t, server.Addr())
			client := open(t, config(proxy.URL()))
			w := tap(proxy)
			lock := tryLock(t, client, t.Name(), redlatch.WithoutRenewal())
			until := lock.Until()
			w.lose("extend", how)
			err := lock.Extend(t.Context(), 30*time.Second)
			if !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrLost) || failureOf(t, err).Op != "extend" {
				t.Errorf("extend: %v", err)
			}
			if !lock.Until().Equal(until) || lock.Err() != nil {
				t.Errorf("valid until %v, was %v; %v", lock.Until(), until, lock.Err())
			}
			if left := remaining(t, server, t.Name()); left < 25*time.Second {
				t.Fatalf("the server did not extend: %v left", left)
			}
			proxy.Cut()
			await(t, "extended over a new connection", func() bool { return lock.Extend(t.Context(), 30*time.Second) == nil })
			if !lock.Until().After(until) {
				t.Errorf("valid until %v, was %v", lock.Until(), until)
			}
			unlock(t, lock)
			awaitValue(t, server, t.Name(), "")
		})
	}
}

// A connection breaks while nobody uses it, as servers and middle boxes do with
// idle ones. The next step counts all the same: nothing of it was lost.
func TestIdleConnectionsBreak(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := shared(t, n)
			proxies := redistest.Proxies(t, nodes)
			client := open(t, config(proxyURLs(proxies)...))
			// The client reads the end of its connections in its own time, and
			// what it sends before that is lost: so it gets several breaks, and
			// ever more time.
			breaks := 0
			survives := func(what string, step func() error) {
				t.Helper()
				var err error
				for pause := 10 * time.Millisecond; pause < 2*time.Second; pause *= 2 {
					breaks++
					await(t, "all is well before the break", func() bool {
						other, err := client.TryLock(t.Context(), t.Name()+"/other")
						return err == nil && other.Unlock(t.Context()) == nil
					})
					for _, p := range proxies {
						before := p.Stats().Accepted
						p.Hangup()
						if err := p.Await(within(t, patience), func(s redistest.Stats) bool { return s.Accepted-s.Open >= before }); err != nil {
							t.Fatal(err)
						}
					}
					<-time.After(pause)
					if err = step(); err == nil {
						return
					}
				}
				t.Fatalf("%s: %v", what, err)
			}
			unlock(t, tryLock(t, client, t.Name()))
			var lock *redlatch.Lock
			survives("lock", func() (err error) {
				lock, err = client.TryLock(t.Context(), t.Name())
				return err
			})
			survives("extend", func() error { return lock.Extend(t.Context(), 20*time.Second) })
			survives("unlock", func() error {
				if lock.Err() != nil {
					lock = tryLock(t, client, t.Name())
				}
				return lock.Unlock(t.Context())
			})
			t.Logf("%d breaks", breaks)
		})
	}
}

func failureOf(t *testing.T, err error) *redlatch.QuorumError {
	t.Helper()
	failure, ok := errors.AsType[*redlatch.QuorumError](err)
	if !ok {
		t.Fatalf("%v is no *QuorumError", err)
	}
	return failure
}
