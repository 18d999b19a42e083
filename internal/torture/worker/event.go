package worker

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Kind says what an Event is.
type Kind string

// What a worker goes through with a lock, in this order.
const (
	Call      Kind = "call"      // it begins to acquire Name, or a set, or one of several slots
	Fail      Kind = "fail"      // it has not acquired it, and gave up
	Acquired  Kind = "acquired"  // it holds Name until Until, with Token
	Extended  Kind = "extended"  // it holds Name until Until
	Reading   Kind = "reading"   // it begins to read the registers of Name
	Read      Kind = "read"      // they read Open and Guarded, or it was Stale
	Writing   Kind = "writing"   // it begins to write ID over what it read
	Wrote     Kind = "wrote"     // it has, or was Stale at the guarded one
	Lost      Kind = "lost"      // it knows that it does not hold Name any more
	Releasing Kind = "releasing" // it begins to release Name: it holds it no more
	Released  Kind = "released"  // the release was confirmed, unless Err is there
)

// Event is one moment of a worker.
type Event struct {
	T    int64  `json:"t"` // ns of CLOCK_MONOTONIC
	Kind Kind   `json:"e"`
	Name string `json:"n,omitempty"`
	// With are further names, of a set that is called for or held, or the further slots that are called for.
	With    []string `json:"w,omitempty"`
	Shared  bool     `json:"s,omitempty"` // it is a reader
	Until   int64    `json:"u,omitempty"` // as T
	Token   uint64   `json:"k,omitempty"`
	ID      string   `json:"i,omitempty"`
	Open    string   `json:"o,omitempty"`
	Guarded string   `json:"g,omitempty"`
	Stale   bool     `json:"x,omitempty"`
	Err     string   `json:"r,omitempty"`
}

// log writes events. One goroutine uses it.
type log struct {
	file *os.File
	line []byte
	err  error // of the first write that failed
}

func openLog(path string) (*log, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &log{file: file}, nil
}

// write puts e into the file in one system call: a process that is killed leaves
// whole lines.
func (l *log) write(e Event) {
	if l.err != nil {
		return
	}
	if e.T == 0 {
		e.T = Now()
	}
	line, err := json.Marshal(e)
	if err == nil {
		l.line = append(append(l.line[:0], line...), '\n')
		_, err = l.file.Write(l.line)
	}
	l.err = err
}

func (l *log) close() error { return errors.Join(l.err, l.file.Close()) }

// ReadEvents calls visit with each event of a worker's file, in order.
func ReadEvents(path string, visit func(Event)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := json.NewDecoder(bufio.NewReaderSize(file, 1<<16))
	for {
		var e Event
		switch err := lines.Decode(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", path, err)
		}
		visit(e)
	}
}
