//go:build unix

package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/printable"
)

func TestPrinterLevels(t *testing.T) {
	for lvl, want := range map[level]string{
		quiet:   "redlatch: warning: c\n",
		normal:  "redlatch: a\nredlatch: warning: c\n",
		verbose: "redlatch: a\nredlatch: b\nredlatch: warning: c\n",
	} {
		var got bytes.Buffer
		p := &printer{level: lvl, out: &got}
		p.say("a")
		p.detail("b")
		p.warn("c")
		if got.String() != want {
			t.Errorf("level %d: %q, want %q", lvl, got.String(), want)
		}
	}
}

// What a server says may have lines of its own: each gets the prefix.
func TestPrinterLines(t *testing.T) {
	var got bytes.Buffer
	p := &printer{out: &got}
	p.fail(&outcome{err: io.ErrUnexpectedEOF, details: []string{"one\r\ntwo"}, hints: []string{"three"}})
	const want = "redlatch: unexpected EOF\nredlatch:   one\nredlatch: two\nredlatch: hint: three\n"
	if got.String() != want {
		t.Errorf("%q, want %q", got.String(), want)
	}
}

// What is too long to read loses its middle, not the reason at its end.
func TestPrinterLongLine(t *testing.T) {
	var got bytes.Buffer
	p := &printer{out: &got}
	p.warn("%q: %s", "x"+strings.Repeat("é", 1<<20)+"y", "use 512 bytes at most") // both cuts are within an é
	p.warn("short")
	long, rest, _ := strings.Cut(got.String(), "\n")
	if !strings.HasPrefix(long, `redlatch: warning: "xéé`) || !strings.HasSuffix(long, `ééy": use 512 bytes at most`) || strings.Count(long, "é…é") != 1 || !printable.Is(long) || len(long) > longestLine+20 {
		t.Errorf("%d bytes: %.40q", len(long), long)
	}
	if rest != "redlatch: warning: short\n" {
		t.Errorf("%q", rest)
	}
}

// A writer that blocks holds nobody up; what it has room for comes in order.
func TestPrinterDetached(t *testing.T) {
	r, w := io.Pipe()
	p, end := (&printer{level: normal, out: w}).detached()
	const lines = 3 * backlog
	for range lines {
		p.say("line")
	}
	got := make(chan string)
	go func() {
		text, _ := io.ReadAll(r)
		got <- string(text)
	}()
	end()
	p.say("too late")
	w.Close()
	// One more may have been taken off the queue before the rest came.
	if n := strings.Count(<-got, "redlatch: line\n"); n != backlog && n != backlog+1 {
		t.Errorf("%d of %d lines, want %d", n, lines, backlog)
	}
}

// flush returns when the lines before it are out, and not never when they stay.
func TestPrinterFlush(t *testing.T) {
	r, w := io.Pipe()
	p, end := (&printer{level: normal, out: w}).detached()
	p.say("stuck")
	p.flush(time.Millisecond)
	got := make(chan string)
	go func() {
		text, _ := io.ReadAll(r)
		got <- string(text)
	}()
	p.flush(limit)
	w.Close() // from here on every write fails
	p.say("late")
	end()
	if text := <-got; text != "redlatch: stuck\n" {
		t.Errorf("written before the flush was over: %q", text)
	}
}
