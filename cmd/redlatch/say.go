package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/printable"
)

// Rules for what redlatch prints:
//
//   - stderr only, but for what was asked for, and for a failure with --json: stdout
//     and stdin belong to COMMAND;
//   - one line a fact, each with the prefix "redlatch: ", lower case, no full
//     stop;
//   - an error says what could not be done, then why; a node's answer is an
//     indented line of its own; a remedy is a line that starts with "hint: ";
//   - never a password: nodes are shown by their name, URLs by redisconn.Redact;
//   - nothing that a terminal obeys: what is not printable is escaped;
//   - a command to paste is quoted for the shell;
//   - durations are rounded to what a person reads, points in time are local.

// level says how much is printed.
type level int

const (
	// quiet leaves out progress, and that the lock is held by another.
	quiet level = iota
	normal
	verbose
)

// printer writes to the terminal. It is safe for concurrent use.
type printer struct {
	level level
	// asJSON: the end of a command that failed is told as JSON, on stdout.
	asJSON bool

	// mu keeps the lines of one message together. It is held across a write
	// to stderr, which blocks as long as stderr does: see detached.
	mu  sync.Mutex
	out io.Writer
}

const (
	// backlog is how many messages wait for a stderr that blocks.
	backlog = 256
	// flushTime is how long the end of a program waits for it.
	flushTime = time.Second
)

// detached returns a printer that never blocks: a terminal stopped with Ctrl-S,
// or a reader of stderr that does not read, must not keep the holder of a lock
// from killing what it has to. Messages beyond the backlog are lost. end waits
// for what was written, a second at most, and ends the printer.
func (p *printer) detached() (q *printer, end func()) {
	waiting := make(queue, backlog)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m := range waiting {
			if m.reached != nil {
				close(m.reached)
				continue
			}
			p.mu.Lock()
			_, _ = p.out.Write(m.text)
			p.mu.Unlock()
		}
	}()
	q = &printer{level: p.level, out: waiting}
	return q, func() {
		q.mu.Lock()
		q.out = io.Discard // whoever writes now comes too late
		q.mu.Unlock()
		close(waiting)
		select {
		case <-done:
		case <-time.After(flushTime):
		}
	}
}

// flush waits until what a detached printer was given so far is written, for
// limit at most.
func (p *printer) flush(limit time.Duration) {
	p.mu.Lock()
	waiting, ok := p.out.(queue)
	p.mu.Unlock()
	if !ok {
		return
	}
	m := message{reached: make(chan struct{})}
	select {
	case waiting <- m:
	default:
		return // full: it does not move
	}
	select {
	case <-m.reached:
	case <-time.After(limit):
	}
}

// queue is a writer that drops what does not fit.
type queue chan message

// message is a text to write, or a mark: reached is closed when all before it
// were written.
type message struct {
	text    []byte
	reached chan struct{}
}

func (q queue) Write(text []byte) (int, error) {
	select {
	case q <- message{text: bytes.Clone(text)}:
	default:
	}
	return len(text), nil
}

// say tells what happened when nobody needs to act on it.
func (p *printer) say(format string, args ...any) {
	if p.level >= normal {
		p.write(fmt.Sprintf(format, args...))
	}
}

// detail tells what only those want to know who look for something.
func (p *printer) detail(format string, args ...any) {
	if p.level >= verbose {
		p.write(fmt.Sprintf(format, args...))
	}
}

// warn tells what somebody should look at though the command goes on.
func (p *printer) warn(format string, args ...any) {
	p.write("warning: " + fmt.Sprintf(format, args...))
}

// fail tells why a command ends.
func (p *printer) fail(o *outcome) {
	if o.err == nil {
		return
	}
	if p.asJSON {
		p.failJSON(o)
		return
	}
	lines := []string{inFlags(o.err.Error())}
	for _, detail := range o.details {
		lines = append(lines, "  "+inFlags(detail))
	}
	for _, hint := range o.hints {
		lines = append(lines, "hint: "+hint)
	}
	p.write(lines...)
}

// failJSON is fail for those who read JSON, who find it where they look for the answer.
func (p *printer) failJSON(o *outcome) {
	details := make([]string, len(o.details))
	for i, detail := range o.details {
		details[i] = inFlags(detail)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(struct {
		Error   string   `json:"error"`
		Exit    int      `json:"exit"`
		Details []string `json:"details,omitempty"`
		Hints   []string `json:"hints,omitempty"`
	}{inFlags(o.err.Error()), o.code, details, o.hints})
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	_, _ = os.Stdout.Write(text.Bytes()) // there is nowhere else to tell of it
}

func (p *printer) write(lines ...string) {
	var text strings.Builder
	for _, line := range lines {
		// An error may span lines, and quote others.
		for part := range strings.Lines(line) {
			fmt.Fprintf(&text, "redlatch: %s\n", printable.Text(strings.TrimRight(part, "\r\n")))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	io.WriteString(p.out, text.String())
}

// logger is the library's log: shown with --verbose only.
func (p *printer) logger() *slog.Logger {
	if p.level < verbose {
		return nil
	}
	return slog.New(slog.NewTextHandler(logLines{p}, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, attr slog.Attr) slog.Attr {
			if len(groups) == 0 && (attr.Key == slog.TimeKey || attr.Key == slog.LevelKey) {
				return slog.Attr{}
			}
			return attr
		},
	}))
}

// logLines puts each record of a slog handler, one Write, on a line.
type logLines struct{ printer *printer }

func (l logLines) Write(line []byte) (int, error) {
	l.printer.write(string(line))
	return len(line), nil
}
