package waiting

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// logbook is a slog.Handler that keeps what it is told.
type logbook struct {
	level slog.Level

	mu    sync.Mutex // guards lines
	lines []string
}

func (l *logbook) Enabled(_ context.Context, level slog.Level) bool { return level >= l.level }

func (l *logbook) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l *logbook) WithGroup(string) slog.Handler { return l }

func (l *logbook) Handle(_ context.Context, r slog.Record) error {
	line := fmt.Sprint(r.Level, " ", r.Message)
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

// with are the lines that contain all of parts.
func (l *logbook) with(parts ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for _, line := range l.lines {
		has := true
		for _, part := range parts {
			has = has && strings.Contains(line, part)
		}
		if has {
			found = append(found, line)
		}
	}
	return found
}

// A quarantine is logged when it is met, with all that there is to know of it, and when its node
// votes; Stats has it meanwhile, and a Lock that waits says why, once.
func TestQuarantineIsLogged(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("N=%d", n), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, n)
			book := &logbook{level: slog.LevelInfo}
			c := locktest.Config(redistest.URLs(nodes)...)
			c.NoQuarantine, c.MaxTTL = false, 24*time.Hour // longer than any server of a test runs
			c.Logger = slog.New(book)
			client, other := locktest.Open(t, c), locktest.Open(t, c)
			if s := client.Stats(); s.Quarantined != 0 {
				t.Errorf("%d are known to be in quarantine before anything was asked", s.Quarantined)
			}
			out := locktest.LockIn(t.Context(), client, t.Name())
			locktest.Await(t, "all are met", func() bool { return client.Stats().Quarantined == n && len(book.with("INFO waiting for the lock")) > 0 })
			for i := range n {
				lines := book.with("WARN node in quarantine", fmt.Sprintf("node=n%d ", i), "may have forgotten locks of up to 24h0m0s", " since=", " until=", "redlatch admit")
				if len(lines) != 1 {
					t.Errorf("node %d: %q", i, lines)
				}
			}
			if lines := book.with("INFO waiting for the lock", "name="+t.Name(), "nodes not admitted"); len(lines) != 1 {
				t.Errorf("the wait: %q", lines)
			}
			for i := range n {
				locktest.Vouch(t, other, fmt.Sprint("n", i))
			}
			o := <-out
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			locktest.Unlock(t, o.Lock)
			locktest.Await(t, "all vote", func() bool {
				locktest.Unlock(t, locktest.TryLock(t, client, t.Name()))
				return client.Stats().Quarantined == 0
			})
			for i := range n {
				if lines := book.with("INFO node votes: its quarantine is over", fmt.Sprintf("node=n%d ", i)); len(lines) != 1 {
					t.Errorf("node %d votes: %q", i, lines)
				}
			}
			if lines := book.with("WARN"); len(lines) != n {
				t.Errorf("warnings: %q", lines)
			}
			// A busy machine's nodes may not have answered in time, which is another reason.
			if lines := book.with("INFO waiting", "nodes not admitted"); len(lines) != 1 {
				t.Errorf("waits: %q", lines)
			}
		})
	}
}

// A Lock that waits for longer than a second says why at Info, once, though the holder changes;
// and with a log at Debug, where this very program holds the lock.
func TestWaitIsLogged(t *testing.T) {
	t.Parallel()
	for _, level := range []slog.Level{slog.LevelWarn, slog.LevelInfo, slog.LevelDebug} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, 3)
			book := &logbook{level: level}
			c := locktest.Config(redistest.URLs(nodes)...)
			other := locktest.Open(t, c)
			c.Logger = slog.New(book)
			client := locktest.Open(t, c)

			theirs := locktest.TryLock(t, other, t.Name()+"/theirs")
			elsewhere := locktest.LockIn(t.Context(), client, theirs.Name())
			_, file, line, _ := runtime.Caller(0)
			ours, err := client.Lock(t.Context(), t.Name()+"/ours")
			line++ // the call is on the next one
			if err != nil {
				t.Fatal(err)
			}
			report, waits := locktest.WhenWaiting(nil)
			here := locktest.LockIn(t.Context(), client, ours.Name(), report)
			<-waits

			started := time.Now()
			wait := func(name string) []string { return book.with("INFO waiting for the lock", "name="+name+" ") }
			if level == slog.LevelWarn {
				locktest.Await(t, "it would have been logged", func() bool { return time.Since(started) > 2500*time.Millisecond })
			} else {
				locktest.Await(t, "both are logged", func() bool { return len(wait(ours.Name())) > 0 && len(wait(theirs.Name())) > 0 })
			}
			locktest.Unlock(t, theirs)
			locktest.Unlock(t, ours)
			for _, o := range []locktest.Outcome{<-elsewhere, <-here} {
				if o.Err != nil {
					t.Fatal(o.Err)
				}
				locktest.Unlock(t, o.Lock)
			}
			switch level {
			case slog.LevelWarn:
				if lines := book.with(""); len(lines) > 0 {
					t.Errorf("%q", lines)
				}
				return
			case slog.LevelInfo:
				if lines := book.with(" the call at "); len(lines) > 0 {
					t.Errorf("looked up without need: %q", lines)
				}
			case slog.LevelDebug:
				if lines := book.with("held by this client, by the call at " + fmt.Sprintf("%s:%d", file, line)); len(lines) != 1 {
					t.Errorf("no %s:%d in %q", file, line, wait(ours.Name()))
				}
			}
			if lines := wait(ours.Name()); len(lines) != 1 || !strings.Contains(lines[0], "held by this client") {
				t.Errorf("%q", lines)
			}
			if lines := wait(theirs.Name()); len(lines) != 1 || !strings.Contains(lines[0], "held by another: ") {
				t.Errorf("%q", lines)
			}
		})
	}
}

// What cannot be connected to is counted, until it can.
func TestUnreachableIsCounted(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
	locktest.Await(t, "all are reached", func() bool { return client.Stats().Contacted == 3 })
	locks := 0
	counts := func(n int) func() bool {
		return func() bool {
			locks++ // what is left of the lock before is in nobody's way
			locktest.Unlock(t, locktest.TryLock(t, client, fmt.Sprint(t.Name(), locks)))
			return client.Stats().Unreachable == n
		}
	}
	locktest.Await(t, "none is missed", counts(0))
	if err := proxies[2].Refuse(true); err != nil {
		t.Fatal(err)
	}
	proxies[2].Cut()
	locktest.Await(t, "one is", counts(1))
	if err := proxies[2].Refuse(false); err != nil {
		t.Fatal(err)
	}
	locktest.Await(t, "it is back", counts(0))
}
