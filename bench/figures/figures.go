// Package figures is what a run of the benchmarks leaves behind, a line of JSON for each of: the
// machine and the versions it began with; every figure, with all its rounds; how it ended. The page
// is made from that alone (package report).
package figures

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"
)

// Begin is what is known before the first benchmark.
type Begin struct {
	Time       time.Time
	Commit     string // -dirty where files were changed since
	Command    string
	CPU        string
	Processors int
	Memory     int64 // bytes
	System     string
	Versions   []Version
	Load       string // averages of 1, 5 and 15 minutes
}

// Version is that of a program or library.
type Version struct{ Name, Version string }

// Figure is one metric of one row of a benchmark, each round's.
type Figure struct {
	Benchmark, Row, Metric string
	Rounds                 []float64
}

// End is what is known after the last benchmark.
type End struct {
	Seconds float64
	Load    string
	// Others and Stolen are the parts of the processors' time, in %, that other programs of this machine
	// took, and the host of a virtual machine.
	Others, Stolen float64
}

// Run is one process's benchmarks.
type Run struct {
	Begin
	Figures []Figure
	End
}

type line struct {
	Begin  *Begin  `json:",omitempty"`
	Figure *Figure `json:",omitempty"`
	End    *End    `json:",omitempty"`
}

// Log writes a run, line by line. The nil Log writes nothing. It is safe for concurrent use.
type Log struct {
	mu sync.Mutex // one line at a time
	to io.Writer
}

// NewLog begins a run.
func NewLog(to io.Writer, begin Begin) (*Log, error) {
	l := &Log{to: to}
	return l, l.write(line{Begin: &begin})
}

// Add writes a figure. One that is not a number in some round, as a ratio to nothing is, has none.
func (l *Log) Add(f Figure) error {
	if l == nil || slices.ContainsFunc(f.Rounds, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }) {
		return nil
	}
	return l.write(line{Figure: &f})
}

// End ends the run.
func (l *Log) End(end End) error {
	if l == nil {
		return nil
	}
	return l.write(line{End: &end})
}

func (l *Log) write(what line) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.to.Write(append(text, '\n'))
	return err
}

// Read returns the runs that were written one after the other. One that did not end is an error.
func Read(from io.Reader) (runs []Run, err error) {
	lines := json.NewDecoder(from)
	lines.DisallowUnknownFields()
	open := false
	for n := 1; ; n++ {
		var l line
		if err := lines.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		switch last := len(runs) - 1; {
		case l.Begin != nil && !open:
			runs, open = append(runs, Run{Begin: *l.Begin}), true
		case l.Figure != nil && open:
			runs[last].Figures = append(runs[last].Figures, *l.Figure)
		case l.End != nil && open:
			runs[last].End, open = *l.End, false
		default:
			return nil, fmt.Errorf("line %d is out of place: a run is its beginning, its figures and its end", n)
		}
	}
	if open || len(runs) == 0 {
		return nil, errors.New("the last run did not end: some benchmark failed, run them again")
	}
	return runs, nil
}
