//go:build unix

package demo

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// A pipe gets only lines, and once a second the first line of the block.
func TestViewInAPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	v := newView(w)
	block := []line{{"3 acquisitions", plain}, {"node 1", bad}}
	v.say("hello")
	for _, ms := range []int64{100, 900, 1000, 1100, 1900, 2100} {
		v.draw(time.Duration(ms)*time.Millisecond, block)
	}
	v.happen(2500*time.Millisecond, "node %d: killed", 2)
	v.clear()
	w.Close()
	got, err := io.ReadAll(r)
	if err != nil || v.err != nil {
		t.Fatal(err, v.err)
	}
	const want = "hello\n   1.0 s  3 acquisitions\n   2.1 s  3 acquisitions\n   2.5 s  node 2: killed\n"
	if string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// In a terminal, the block stays below the lines: it is removed and drawn again,
// and it is cut to the size of the terminal.
func TestViewInATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	defer tty.Close()
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 4, Cols: 11}); err != nil {
		t.Fatal(err)
	}
	v := newView(tty)
	if !v.live || v.color {
		t.Fatalf("live %v, color %v", v.live, v.color)
	}
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		read := make(chan error, 1)
		go func() {
			_, err := io.ReadFull(terminal, got)
			read <- err
		}()
		select {
		case err := <-read:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(limit):
			t.Fatalf("less than %q was written", want)
		}
		if string(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	v.draw(0, []line{{"ééééééééééééé", plain}, {"two", good}, {"three", plain}, {"four", plain}})
	expect("éééééééééé\r\ntwo\r\nthree\r\n")
	v.say("said")
	expect("\r\x1b[3A\x1b[Jsaid\r\néééééééééé\r\ntwo\r\nthree\r\n")
	v.draw(0, []line{{"one", plain}})
	expect("\r\x1b[3A\x1b[Jone\r\n")
	v.clear()
	expect("\r\x1b[1A\x1b[J")
	v.color = true
	v.draw(0, []line{{"bad", bad}})
	expect("\x1b[31mbad\x1b[0m\r\n")
}

func TestViewDumb(t *testing.T) {
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	defer tty.Close()
	for _, kind := range []string{"", "dumb"} {
		t.Setenv("TERM", kind)
		if newView(tty).live {
			t.Errorf("a live view with TERM=%q", kind)
		}
	}
}

// The view keeps the error of the first write that failed, which ends the run.
func TestViewOutOfReach(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	v := newView(w)
	v.say("%s", strings.Repeat("x", 10))
	v.say("%s", bytes.Repeat([]byte("x"), 10))
	if v.err == nil {
		t.Error("no error")
	}
}
