package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/internal/printable"
)

// Rules for what redlatch prints:
//
//   - It prints to stderr, except for the output of a command and for a failure with
//     --json: the stdin and stdout of redlatch run belong to COMMAND.
//   - Each fact is a line of its own, with the prefix "redlatch: ", in lower case,
//     without a full stop.
//   - An error says what could not be done, then why. A node's answer is an
//     indented line of its own. A remedy is a line that starts with "hint: ".
//   - It never prints a password: it shows nodes by name, and URLs by redisconn.Redact.
//   - It prints nothing that controls a terminal: it escapes what is not printable.
//   - Of what fills a terminal, such as a file given as a name, it leaves out the middle.
//   - A command to paste is quoted for the shell.
//   - Durations are rounded for people to read, and points in time are local.

// level says how much redlatch prints.
type level int

const (
	// quiet leaves out progress, and that another client holds the lock.
	quiet level = iota
	normal
	verbose
)

// printer writes to the terminal. It is safe for concurrent use.
type printer struct {
	level level
	// asJSON: fail prints JSON, to stdout.
	asJSON bool

	// mu keeps the lines of one message together. It is held during a write to
	// stderr, which may block: see detached.
	mu  sync.Mutex
	out io.Writer
}

const (
	// backlog is how many messages can wait for a stderr that blocks.
	backlog = 256
	// flushTime is how long the program waits for such a stderr before it ends.
	flushTime = time.Second
)

// detached returns a printer that never blocks: a terminal stopped with Ctrl-S,
// or a reader of stderr that does not read, must not keep the holder of a lock
// from killing what it has to. Messages beyond the backlog are lost. end ends the
// printer, and waits at most a second until its messages are written.
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
	q = &printer{level: p.level, asJSON: p.asJSON, out: waiting}
	return q, func() {
		q.mu.Lock()
		q.out = io.Discard // later messages are lost
		q.mu.Unlock()
		close(waiting)
		select {
		case <-done:
		case <-time.After(flushTime):
		}
	}
}

// flush waits until the messages that a detached printer has so far are written, for
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
		return // the queue is full: stderr blocks
	}
	select {
	case <-m.reached:
	case <-time.After(limit):
	}
}

// queue is a writer that drops messages if it is full.
type queue chan message

// message is a text to write, or a mark: reached is closed when all messages before it
// are written.
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

// say reports something that nobody needs to act on.
func (p *printer) say(format string, args ...any) {
	if p.level >= normal {
		p.write(fmt.Sprintf(format, args...))
	}
}

// detail reports something that only --verbose shows.
func (p *printer) detail(format string, args ...any) {
	if p.level >= verbose {
		p.write(fmt.Sprintf(format, args...))
	}
}

// warn reports something that somebody should look at, while the command goes on.
func (p *printer) warn(format string, args ...any) {
	p.write("warning: " + fmt.Sprintf(format, args...))
}

// fail reports why a command has failed.
func (p *printer) fail(o *outcome) {
	if o.err == nil {
		return
	}
	if p.asJSON && failJSON(o) {
		return
	}
	p.write(failLines(o)...)
}

// failLines returns the lines that tell people why a command has failed.
func failLines(o *outcome) []string {
	lines := []string{inFlags(o.err.Error())}
	for _, detail := range o.details {
		lines = append(lines, "  "+inFlags(detail))
	}
	for _, hint := range o.hints {
		lines = append(lines, "hint: "+hint)
	}
	return lines
}

// failJSON is fail for programs that read JSON. It prints to stdout, where they expect the
// answer, and reports whether somebody took it.
func failJSON(o *outcome) bool {
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
	return taken(text.String())
}

// taken writes text to stdout, and reports whether that could be done soon.
func taken(text string) bool {
	select {
	case err := <-writing(text):
		return err == nil
	case <-time.After(flushTime):
		return false
	}
}

// longestLine is how many bytes of a line are printed.
const longestLine = 4096

// withoutMiddle cuts a line that is too long. What is wrong is at its beginning, and why at its end.
func withoutMiddle(line string) string {
	if len(line) <= longestLine {
		return line
	}
	const half = longestLine / 2
	return strings.ToValidUTF8(line[:half], "") + "…" + strings.ToValidUTF8(line[len(line)-half:], "")
}

func (p *printer) write(lines ...string) {
	var text strings.Builder
	for _, line := range lines {
		// An error may have several lines, and text from others in it.
		for part := range strings.Lines(line) {
			fmt.Fprintf(&text, "redlatch: %s\n", withoutMiddle(printable.Text(strings.TrimRight(part, "\r\n"))))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	io.WriteString(p.out, text.String())
}

// writing writes text to stdout, and returns a channel that gets the error or nil. Whoever has caught
// signals does not wait for the write alone: a reader that does not read must not keep a signal
// from ending the command.
func writing(text string) <-chan error {
	written := make(chan error, 1)
	go func() {
		_, err := os.Stdout.WriteString(text)
		written <- err
	}()
	return written
}

// unwritten is the outcome of a command that goes on printing if stdout takes no more. That a reader has
// gone away, as head does, is no news.
func unwritten(err error) *outcome {
	if errors.Is(err, syscall.EPIPE) {
		return &outcome{code: exitSignal + int(syscall.SIGPIPE)}
	}
	return &outcome{code: exitSystem, err: err}
}

// logger returns the logger for the library, or nil without --verbose.
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

// logLines prints each record of a slog handler, which is one Write, as a line.
type logLines struct{ printer *printer }

func (l logLines) Write(line []byte) (int, error) {
	l.printer.write(string(line))
	return len(line), nil
}
