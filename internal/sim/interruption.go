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
}

// interrupt prepares one, as it is drawn. The caller holds world.mu.
func (s *clusterNode) interrupt() *interruption {
	r := s.cluster.rng
	i := &interruption{server: s, scripts: 1 + r.IntN(6), reached: make(chan struct{})}
	if r.IntN(2) == 0 {
		i.decisions, i.scripts = true, 1+r.IntN(2)
	}
	s.interruption = i
	return i
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
		if i.server.interruption != i {
			return
		}
		i.server.interruption = nil
		n := i.server.node
		inbox := n.inbox
		n.inbox = nil
		for _, l := range inbox {
			n.receive(l.stream, l.r)
		}
	})
}

// holds reports whether a request has to wait until end. The caller holds world.mu.
func (i *interruption) holds(r *request) bool {
	if i == nil {
		return false
	}
	if i.scripts > 0 && i.awaits(r) {
		if i.scripts--; i.scripts == 0 {
			close(i.reached)
		}
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
