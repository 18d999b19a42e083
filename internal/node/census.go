package node

import (
	"fmt"
	"slices"
	"sync"

	"github.com/redlatch/redlatch/internal/printable"
)

// Census knows the nodes that one client was given, and which server process
// answers behind each, so that no server votes twice and two clients that name
// one set differently can recognise it.
type Census struct {
	names []string

	mu   sync.Mutex // guards runs; nothing is called while it is held
	runs []string
}

// NewCensus returns the census of the nodes with these names.
func NewCensus(names []string) *Census {
	return &Census{names: names, runs: make([]string, len(names))}
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
