package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// answers waits until the server answers command with an error of that code.
func answers(t *testing.T, s *redistest.Server, code string, command ...string) {
	t.Helper()
	locktest.Await(t, "the server says "+code, func() bool {
		_, err := s.Do(command...)
		refusal, ok := errors.AsType[redistest.ServerError](err)
		return ok && refusal.Code() == code
	})
}

// outages are what a server may say that cannot do what it is asked now. start returns what
// ends it.
var outages = map[string]struct {
	args  []string
	start func(t *testing.T, s *redistest.Server) (end func())
	// releases: it deletes all the same.
	releases bool
}{
	"OOM": {releases: true, start: func(t *testing.T, s *redistest.Server) func() {
		locktest.Do(t, s, "CONFIG", "SET", "maxmemory", "1")
		return func() { locktest.Do(t, s, "CONFIG", "SET", "maxmemory", "0") }
	}},
	"NOREPLICAS": {start: func(t *testing.T, s *redistest.Server) func() {
		locktest.Do(t, s, "CONFIG", "SET", "min-replicas-to-write", "1")
		return func() { locktest.Do(t, s, "CONFIG", "SET", "min-replicas-to-write", "0") }
	}},
	"MISCONF": {args: []string{"--save", "3600 1", "--dbfilename", "directory"}, start: func(t *testing.T, s *redistest.Server) func() {
		// Nobody can write a file where there is a directory, not even root.
		dir := filepath.Join(locktest.Do(t, s, "CONFIG", "GET", "dir").([]any)[1].(string), "directory")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		locktest.Do(t, s, "BGSAVE")
		answers(t, s, "MISCONF", "SET", "probe", "")
		return func() {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
			locktest.Do(t, s, "BGSAVE")
		}
	}},
	"BUSY": {args: []string{"--busy-reply-threshold", "1"}, start: func(t *testing.T, s *redistest.Server) func() {
		send(t, s, "EVAL", "while true do end", "0")
		answers(t, s, "BUSY", "GET", "x")
		return func() { locktest.Do(t, s, "SCRIPT", "KILL") }
	}},
	"LOADING": {start: func(t *testing.T, s *redistest.Server) func() {
		// It looks at its clients once for so many bytes, which is each key, and takes 100 s.
		locktest.Do(t, s, "CONFIG", "SET", "rdbcompression", "no")
		locktest.Do(t, s, "DEBUG", "POPULATE", "1000", "filler", "1024")
		locktest.Do(t, s, "CONFIG", "SET", "loading-process-events-interval-bytes", "1024")
		locktest.Do(t, s, "CONFIG", "SET", "key-load-delay", "100000") // µs
		send(t, s, "DEBUG", "RELOAD")
		answers(t, s, "LOADING", "GET", "x")
		return func() { locktest.Do(t, s, "CONFIG", "SET", "key-load-delay", "0") }
	}},
}

// send sends a command whose answer nobody waits for.
func send(t *testing.T, s *redistest.Server, command ...string) {
	t.Helper()
	conn, err := s.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.Send(command...); err != nil {
		t.Fatal(err)
	}
}

// A server that cannot lock now has refused nothing for good: Lock waits for it and reports
// its words, TryLock returns them, and what could not be released goes when it is over.
func TestUnavailableServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	for code, outage := range outages {
		for _, option := range []redlatch.Option{redlatch.WithoutRenewal(), redlatch.WithoutQueue()} {
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				server := redistest.New(t, redistest.Options{Binary: binary, Args: outage.args})
				client := locktest.Open(t, locktest.Config(server.URL()))
				held := locktest.TryLock(t, client, "held")
				end := outage.start(t, server)
				err := held.Unlock(t.Context())
				late := unanswered(err) // on a busy machine
				if !late && (outage.releases && err != nil || !outage.releases && (!errors.Is(err, redlatch.ErrNoQuorum) || !strings.Contains(err.Error(), code))) {
					t.Errorf("%s: unlock: %v", code, err)
				}
				locktest.Await(t, "the server answers", func() bool { _, err = client.TryLock(t.Context(), "x"); return !unanswered(err) })
				if !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, redlatch.ErrRefused) || !strings.Contains(fmt.Sprint(err), code) {
					t.Errorf("%s: TryLock: %v", code, err)
				}
				if failure := locktest.FailureOf(t, err); failure.Nodes[0].Verdict != redlatch.VoteUnavailable {
					t.Errorf("%s: the node's answer is %v", code, failure.Nodes[0])
				}
				if ok, err := oneshot.New(client).Take(t.Context(), "taken", "id", locktest.Patience); ok || !errors.Is(err, redlatch.ErrNoQuorum) {
					t.Errorf("%s: Take: %t, %v", code, ok, err)
				}
				told := make(chan error, 100)
				report, waits := locktest.WhenWaiting(func(err error) { told <- err })
				out := locktest.LockIn(locktest.Within(t, locktest.Patience), client, "x", report, option)
				select {
				case <-waits:
				case o := <-out:
					t.Fatalf("%s: Lock does not wait: %v", code, o.Err)
				}
				err = <-told
				for unanswered(err) {
					err = <-told
				}
				if !errors.Is(err, redlatch.ErrNoQuorum) || !strings.Contains(err.Error(), code) {
					t.Errorf("%s: reported: %v", code, err)
				}
				end()
				o := <-out
				if o.Err != nil {
					t.Fatalf("%s: Lock: %v", code, o.Err)
				}
				locktest.Unlock(t, o.Lock)
				for _, name := range []string{"x", "held", "taken"} {
					locktest.AwaitValue(t, server, name, "")
				}
				for _, kind := range []string{"queue", "heartbeats", "next"} {
					locktest.Await(t, "nobody is queued", func() bool { return len(locktest.Do(t, server, "KEYS", "redlatch:*:"+kind+":*").([]any)) == 0 })
				}
			})
		}
	}
}

// A client that is opened while the server cannot lock locks when it can.
func TestUnavailableServerIsMet(t *testing.T) {
	t.Parallel()
	for code, outage := range outages {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t, redistest.Options{Args: outage.args})
			end := outage.start(t, server)
			client := locktest.Open(t, locktest.Config(server.URL()))
			report, waits := locktest.WhenWaiting(func(err error) {
				if errors.Is(err, redlatch.ErrRefused) {
					t.Errorf("reported: %v", err)
				}
			})
			out := locktest.LockIn(locktest.Within(t, locktest.Patience), client, "x", report)
			select {
			case <-waits:
			case o := <-out:
				t.Fatalf("Lock does not wait: %v", o.Err)
			}
			end()
			o := <-out
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			locktest.Unlock(t, o.Lock)
		})
	}
}
