package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/redlatch/redlatch/internal/sim/server"
)

// The keys of a lock and of the deployment on a node, as package node names them.
func sideKey(kind, key string) string {
	tag := key
	if _, rest, ok := strings.Cut(key, "{"); ok {
		tag, _, _ = strings.Cut(rest, "}")
	}
	return "redlatch:{" + tag + "}:" + kind + ":" + key
}

const (
	recordKey   = "redlatch:{default}:deployment"
	admittedKey = "redlatch:{default}:admitted"
)

// agreements are what records say that clients agreed on, by their texts: in a world there are few.
type agreements map[string]string

// of is what a record of the deployment says that its clients agreed on, "" for none.
func (a agreements) of(text string) string {
	agreement, ok := a[text]
	if !ok {
		agreement = agreementOf(text)
		a[text] = agreement
	}
	return agreement
}

// agreementOf reads a record.
func agreementOf(text string) string {
	var r struct {
		Nodes        map[string]string `json:"nodes"`
		MaxTTL       int64             `json:"max_ttl_ms"`
		NoQuarantine bool              `json:"no_quarantine"`
		Durable      bool              `json:"durable"`
	}
	if json.Unmarshal([]byte(text), &r) != nil || len(r.Nodes) == 0 {
		return ""
	}
	var names []string
	for name := range r.Nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return fmt.Sprint(names, r.MaxTTL, r.NoQuarantine, r.Durable)
}

// record is the text of the server's record of the deployment, "" for none.
func record(s *server.Server) string {
	if s == nil {
		return ""
	}
	text, _ := s.Value(recordKey)
	return text
}

// Settled reports whether most of the nodes have a record of what the deployment's clients agreed
// on.
func (w *World) Settled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.settled()
}

// settled reports whether most of the nodes have a record of what the deployment's clients agreed
// on, so that no client can be in doubt. The caller holds world.mu.
func (w *World) settled() bool {
	same := 0
	for _, n := range w.nodes {
		if a := w.agreements.of(record(n.server)); a != "" && a == w.agreement {
			same++
		}
	}
	return same > len(w.nodes)/2
}

// watchRecord has a step judged that may have written what the clients agreed on, or voted: which
// a stranger's client, whose settings are others, may not. To release what it does not have does
// no harm. The caller holds world.mu.
func (n *Node) watchRecord(m *Machine, step []string, before string, settled bool, writes int) {
	w := n.world
	now := record(n.server)
	if !m.Stranger {
		if now != "" && now != before {
			w.agreement = w.agreements.of(now)
		}
		return
	}
	if n.server.Writes != writes && settled && !w.usurped && (len(step) == 0 || step[0] != release) {
		w.Judge.Condemn("a stranger changes nothing: %s has written on %s, which has %s", m.Name, n.Name, before)
	}
	if now != before {
		w.usurped = true // nothing was recorded, and it was the first to come
	}
}

// Usurped reports whether a client with other settings came first where all had forgotten the
// deployment. It has it then, until an operator changes that.
func (w *World) Usurped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.usurped
}

// NewVisitor returns one more machine, to which no fault of the others' comes. stranger: the
// settings of its clients are not those of the others.
func (w *World) NewVisitor(name string, stranger bool, like []Network) *Machine {
	m := w.NewMachine(1, 0, like)
	m.Name, m.Stranger = name, stranger
	return m
}
