package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// interruption stops a server of a Cluster when it is about to run a certain script, until end is called: so that a fault comes
// between two looks at the server, or between a look and what was decided on it.
type interruption struct {
	server *clusterNode
	// scripts counts down to it: the scripts that write what was decided if decisions is set, else those that look.
	scripts   int
	decisions bool
	reached   chan struct{} // closed when the server is about to run it
	held      []letter      // what the server was sent since
}

// interrupt prepares one, as it is drawn. The caller holds world.mu.
func (s *clusterNode) interrupt() *interruption {
	r := s.cluster.rng
	s.amid = &interruption{server: s, scripts: 1 + r.IntN(6), reached: make(chan struct{})}
	if r.IntN(2) == 0 {
		s.amid.decisions, s.amid.scripts = true, 1+r.IntN(2)
	}
	return s.amid
}

// wait waits until the server is about to run that script, for a quarantine at most.
func (i *interruption) wait() {
	if i == nil {
		return
	}
	select {
	case <-i.reached:
	case <-time.After(i.server.cluster.world.Judge.Quarantine):
	}
}

// end lets the server go on.
func (i *interruption) end() {
	if i == nil {
		return
	}
	i.server.cluster.locked(func() {
		if i.server.amid != i {
			return
		}
		i.server.amid = nil
		for _, l := range i.held {
			i.server.node.receive(l.stream, l.r)
		}
	})
}

// holds reports whether a request is held back. The caller holds world.mu.
func (i *interruption) holds(s *stream, r *request) bool {
	if i == nil {
		return false
	}
	if i.scripts > 0 && i.awaits(r) {
		if i.scripts--; i.scripts == 0 {
			close(i.reached)
		}
	}
	if i.scripts == 0 {
		i.held = append(i.held, letter{s, r})
	}
	return i.scripts == 0
}

// awaits reports whether the request is one of the scripts that are counted.
func (i *interruption) awaits(r *request) bool {
	if !strings.HasPrefix(r.args[0], "EVAL") {
		return false
	}
	is := func(s script.Script) bool { return r.args[1] == s.Text || r.args[1] == s.SHA }
	if i.decisions {
		return len(r.step) > 0 && r.step[0] == script.Admit || slices.ContainsFunc([]script.Script{script.Shard, script.Quarantine, script.Mark}, is)
	}
	return is(script.Inspect) || is(script.Nodes)
}
