package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/printable"
)

// Census knows the nodes that one client was given and which server process answers behind each, so
// that no server votes twice and so that two clients that name one set differently can recognise
// it.
type Census struct {
	names []string

	mu   sync.Mutex // guards what follows; nothing is called while it is held
	runs []string
	// duplicate is what Err returns. It is worked out when a report changes something, because each
	// call of a client asks for it.
	duplicate error
	// servers are the processes behind each node that is a Cluster.
	servers []clusterServers
	// records read the nodes' records of the deployment.
	records []recordReader
}

// clusterServers are the server processes that answer for a Cluster's slots, by the last answer for
// each slot.
type clusterServers struct {
	ofSlot map[string]string // the run that answers for a slot, by the slot's tag
	slots  map[string]int    // how many slots a run answers for
}

// report takes in which run answers for a slot, and reports whether that has changed.
func (s *clusterServers) report(slot, run string) (changed bool) {
	before := s.ofSlot[slot]
	if run == before {
		return false
	}
	if s.ofSlot == nil {
		s.ofSlot, s.slots = make(map[string]string), make(map[string]int)
	}
	if s.slots[before]--; s.slots[before] <= 0 {
		delete(s.slots, before)
	}
	s.ofSlot[slot] = run
	s.slots[run]++
	return true
}

// recordReader reads one node's record of the deployment, nil if it has none. It waits for the node
// or for ctx.
type recordReader func(ctx context.Context) (*admission.Record, error)

// NewCensus returns the census of the nodes with these names.
func NewCensus(names []string) *Census {
	c := &Census{names: names, runs: make([]string, len(names)), servers: make([]clusterServers, len(names)), records: make([]recordReader, len(names))}
	for i := range c.records {
		c.records[i] = func(context.Context) (*admission.Record, error) { return nil, errNotOneRecord }
	}
	return c
}

// Names returns the names of the nodes, sorted.
func (c *Census) Names() []string { return slices.Sorted(slices.Values(c.names)) }

// DuplicateError says that two nodes are one server or, where one of them is a Cluster, have a
// server in common. It wraps admission.ErrInvalid, as the setting is wrong also where a node finds it.
type DuplicateError struct {
	First, Second, RunID string
	Cluster              bool
}

func (e *DuplicateError) Error() string {
	if e.Cluster {
		return fmt.Sprintf("Nodes: %s and %s are one Cluster, or part of one (both have the server with run_id %s), which would vote twice: name each Cluster once",
			e.First, e.Second, printable.Text(e.RunID))
	}
	return fmt.Sprintf("Nodes: %s and %s are one server (run_id %s), which would vote twice: name each server once",
		e.First, e.Second, printable.Text(e.RunID))
}

func (e *DuplicateError) Unwrap() error { return admission.ErrInvalid }

// Err returns a *DuplicateError when two nodes are one server just now.
func (c *Census) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.duplicate
}

// duplicates works out what Err returns. The caller holds c.mu.
func (c *Census) duplicates() error {
	// rule: distinct-servers
	for i, run := range c.runs {
		if run == "" {
			continue
		}
		if j := slices.Index(c.runs, run); j != i {
			return &DuplicateError{First: c.names[j], Second: c.names[i], RunID: run}
		}
	}
	for i := range c.names {
		for j := range i {
			if run := c.common(j, i); run != "" {
				return &DuplicateError{First: c.names[j], Second: c.names[i], RunID: run, Cluster: true}
			}
		}
	}
	return nil
}

// common returns a server process that answers behind both of two nodes, at least one of which is a
// Cluster; "" if there is none. The caller holds c.mu.
func (c *Census) common(i, j int) string {
	for _, run := range slices.Sorted(maps.Keys(c.servers[i].slots)) {
		if c.runs[j] == run || c.servers[j].slots[run] > 0 {
			return run
		}
	}
	if c.servers[j].slots[c.runs[i]] > 0 {
		return c.runs[i]
	}
	return ""
}

// errNotOneRecord is the error of a Cluster, where each slot has a record.
var errNotOneRecord = errors.New("a Cluster has no one record")

// join sets the function that reads the record of node i.
func (c *Census) join(i int, read recordReader) {
	c.mu.Lock()
	c.records[i] = read
	c.mu.Unlock()
}

// readers returns the functions that read the nodes' records.
func (c *Census) readers() []recordReader {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.records)
}

// report takes in that the server process run answers behind node i.
func (c *Census) report(i int, run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs[i] != run {
		c.runs[i] = run
		c.duplicate = c.duplicates()
	}
}

// reportSlot takes in that the server process run answers for a slot of node i, a Cluster.
func (c *Census) reportSlot(i int, slot, run string) {
	if run == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.servers[i].report(slot, run) {
		c.duplicate = c.duplicates()
	}
}
