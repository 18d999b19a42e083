//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

// TestMain runs a worker instead of the tests if the test binary was started with its hidden command.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == WorkerCommand {
		if err := Work(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// limit ends a test that would hang. It does not measure speed.
const limit = 30 * time.Second

func wantInvalid(t *testing.T, err error, words string) {
	t.Helper()
	if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v, want an ErrInvalid that says %s", err, words)
	}
	if err != nil && strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is in %v", err)
	}
}

// A wire loses packets each way. Connections outlive that, and what was sent meanwhile arrives
// afterwards.
func TestWire(t *testing.T) {
	if err := wiresPossible(); err != nil {
		t.Skip(err)
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() { // an echo, until the listener is closed
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	w, err := newWire(t.Context(), listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	conn, err := net.Dial("tcp4", w.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	say := func(text string) {
		t.Helper()
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(patience time.Duration) (string, error) {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		b := make([]byte, 1)
		n, err := conn.Read(b)
		return string(b[:n]), err
	}
	for i, way := range []redistest.Direction{redistest.Requests, redistest.Replies, redistest.Both} {
		letter := string(rune('a' + i))
		say(letter)
		if got, err := hear(limit); got != letter || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		if err := w.part(t.Context(), way); err != nil {
			t.Fatal(err)
		}
		say("x")
		if got, err := hear(300 * time.Millisecond); err == nil {
			t.Errorf("way %d: %q came through", way, got)
		}
		if err := w.mend(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := hear(limit); got != "x" || err != nil {
			t.Fatalf("way %d, mended: %q, %v", way, got, err)
		}
	}
	device := w.device
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := net.InterfaceByName(device); err == nil {
		t.Errorf("%s is still there", device)
	}
}

// An open register accepts a write with a stale token, and the guarded one refuses it.
func TestRegisters(t *testing.T) {
	r, err := startRegisters()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(op worker.Op, token uint64, id, prev string) worker.Reply {
		return r.answer(worker.Request{Op: op, Name: "a", Token: token, ID: id, Open: prev, Guarded: prev})
	}
	ask(worker.OpRead, 1, "", "")
	ask(worker.OpRead, 2, "", "")
	if got := ask(worker.OpWrite, 2, "two", ""); got.Stale || got.Guarded != "two" {
		t.Errorf("%+v", got)
	}
	if got := ask(worker.OpWrite, 1, "one", ""); !got.Stale || got.Open != "one" {
		t.Errorf("%+v", got)
	}
	if got := ask("jump", 1, "", ""); got.Err == "" {
		t.Error("an operation that is not known is answered")
	}
	if writes := r.close(); len(writes) != 3 {
		t.Errorf("%+v", writes)
	}
}

// A run that is interrupted returns a report on the run so far, and leaves nothing behind.
func TestRunInterrupted(t *testing.T) {
	if len(redistest.Flavors()) == 0 {
		t.Fatal(redistest.ErrNoServer)
	}
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancelCause(t.Context())
	heard := writer(func(text string) {
		if strings.Contains(text, "workers work") {
			cancel(errors.New("enough"))
		}
	})
	r, err := Run(ctx, Options{
		For: time.Hour, Seed: 1, Nodes: 3, Workers: 2, Names: 1, TTL: time.Second, Faults: []string{"stop", "partition"}, Out: heard,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Interrupted || r.OK() || len(r.Violations()) > 0 || r.Control != nil {
		t.Errorf("interrupted %v, violations %v, control %v", r.Interrupted, r.Violations(), r.Control)
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range left {
		if entry.IsDir() { // the file in which all programs reserve the ports of servers stays
			t.Errorf("left behind: %s", entry.Name())
		}
	}
}

// A run that is interrupted while its control run begins was over before, and what it found is reported.
func TestControlRunInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 s")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	heard := writer(func(text string) {
		if strings.Contains(text, "the control run") {
			cancel(errors.New("enough"))
		}
	})
	r, err := Run(ctx, Options{
		For: 10 * time.Second, Seed: 1, Nodes: 3, Workers: 2, Names: 1, TTL: time.Second, Faults: []string{"stop", "partition"}, Out: heard,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Interrupted || r.Findings.Acquisitions == 0 || r.Control != nil {
		t.Errorf("interrupted %v, %d acquisitions, control %v", r.Interrupted, r.Findings.Acquisitions, r.Control)
	}
}

type writer func(string)

func (w writer) Write(b []byte) (int, error) {
	w(string(b))
	return len(b), nil
}
