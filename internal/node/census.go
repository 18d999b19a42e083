package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/printable"
)

// Census knows the nodes that one client was given, and which server process
// answers behind each, so that no server votes twice and two clients that name
// one set differently can recognise it.
type Census struct {
	names []string

	mu   sync.Mutex // guards what follows; nothing is called while it is held
	runs []string
	// records read the nodes' records of the deployment.
	records []recordReader
}

// recordReader reads one node's record of the deployment, nil if it has none. It waits for
// the node or for ctx.
type recordReader func(ctx context.Context) (*admission.Record, error)

// NewCensus returns the census of the nodes with these names.
func NewCensus(names []string) *Census {
	c := &Census{names: names, runs: make([]string, len(names)), records: make([]recordReader, len(names))}
	for i := range c.records {
		c.records[i] = func(context.Context) (*admission.Record, error) { return nil, errNotOneRecord }
	}
	return c
}

// DuplicateError says that two nodes are one server.
type DuplicateError struct{ First, Second, RunID string }

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("Nodes: %s and %s are one server (run_id %s), which would vote twice: name each server once",
		e.First, e.Second, printable.Text(e.RunID))
}

// Err returns a *DuplicateError when two nodes are one server just now.
func (c *Census) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, run := range c.runs {
		if run == "" {
			continue
		}
		if j := slices.Index(c.runs, run); j != i {
			return &DuplicateError{First: c.names[j], Second: c.names[i], RunID: run}
		}
	}
	return nil
}

// errNotOneRecord: each slot has its own.
var errNotOneRecord = errors.New("a Cluster has no one record")

// join has the record of node i read by read.
func (c *Census) join(i int, read recordReader) {
	c.mu.Lock()
	c.records[i] = read
	c.mu.Unlock()
}

// readers returns what reads each node's record.
func (c *Census) readers() []recordReader {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.records)
}

// report says that the server process run answers behind node i.
func (c *Census) report(i int, run string) {
	c.mu.Lock()
	c.runs[i] = run
	c.mu.Unlock()
}

// members returns each node's name with the last run seen behind it, "" when
// it was never reached.
func (c *Census) members() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	members := make(map[string]string, len(c.names))
	for i, name := range c.names {
		members[name] = c.runs[i]
	}
	return members
}
