package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// interruption holds back what a server of a Cluster is sent, from when it is about to run a script on: so that something comes
// between a look at the server and what is decided on it, or between two looks.
type interruption struct {
	server *clusterNode
	// scripts is how many are still to come: if decisions is set, of those that write what was decided, else of those that look.
	scripts   int
	decisions bool
	reached   chan struct{} // closed when there are none
	held      []letter
}

// interrupt prepares one. The caller holds world.mu.
func (s *clusterNode) interrupt(scripts int, decisions bool) *interruption {
	s.amid = &interruption{server: s, scripts: scripts, decisions: decisions, reached: make(chan struct{})}
	return s.amid
}

// wait waits until the server is about to run the script, for a quarantine at most.
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

// awaits reports whether the request is one of the scripts.
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
