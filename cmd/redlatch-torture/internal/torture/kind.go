//go:build linux

package torture

import (
	"slices"
	"strings"
)

// kind is a sort of fault.
type kind string

const (
	killNode  kind = "kill"       // a server is killed (kill -9), and started again with its data
	wipeNode  kind = "wipe"       // the same, but it is started again without its data
	blackout  kind = "blackout"   // the same as wipe, of a majority at once
	hangNode  kind = "hang"       // a server is stopped (SIGSTOP)
	partition kind = "partition"  // nothing passes to a node, from it, or both
	split     kind = "split"      // half of the workers are cut off from a majority of the nodes
	latency   kind = "latency"    // the network has delay and jitter
	halfOpen  kind = "half-open"  // a server closes its connections, and the clients do not notice
	reset     kind = "reset"      // connections are reset
	refuse    kind = "refuse"     // connections are reset, and new ones are refused
	lostReply kind = "lost-reply" // commands are executed, and the connection is reset before the reply
	namespace kind = "namespace"  // packets are lost on a link into a network namespace
	clockStep kind = "clock"      // a server's clock is stepped, and later stepped back
	nudge     kind = "nudge"      // the same, by less than the drift
	demote    kind = "demote"     // a server is a replica of nobody for a while, then a master again
	failback  kind = "failback"   // a replica is promoted, then the former master again, with the replica's data
	attach    kind = "attach"     // a server gets a replica for a while
	settings  kind = "settings"   // a setting of a running server is changed, and later changed back
	flush     kind = "flush"      // all keys of a running server are deleted
	scripts   kind = "scripts"    // all scripts of a running server are deleted
	restore   kind = "restore"    // a server is killed, and started again with an earlier copy of its data
	admit     kind = "admit"      // an operator admits a node that has forgotten nothing, or tries to admit a replica
	setOne    kind = "set"        // one node is given another MaxTTL of the deployment, and later the former one
	setAll    kind = "set-all"    // all nodes are given another MaxTTL, and a worker comes that has it too
	stop      kind = "stop"       // a worker is stopped for longer than its TTL
	crash     kind = "crash"      // a worker is killed, and another takes its place
	starve    kind = "starve"     // a few workers get a tenth of the CPU
	stranger  kind = "stranger"   // a client comes whose settings are not the deployment's
	neighbour kind = "neighbour"  // a worker of another deployment comes, which wants the same locks
)

// The kinds that only a node has that several servers make up. On such a node killNode, wipeNode and
// hangNode are faults of a master, or of the leader of an ensemble.
const (
	failover     kind = "failover"      // a replica is promoted by order, its master alive
	lag          kind = "lag"           // a replica is promoted that lacks the last writes
	minority     kind = "minority"      // the master, one Sentinel and half of the workers are cut off from the rest
	killSentinel kind = "sentinel-kill" // a Sentinel is killed, and started again
	hangSentinel kind = "sentinel-hang" // a Sentinel is stopped
	takeover     kind = "takeover"      // a replica takes its master's place without asking, and the master takes it back
	moveSlot     kind = "move"          // a slot is moved to another master key by key, and back
	fixSlots     kind = "fix"           // a master is killed, and its slots are given to others without their keys
	killFollower kind = "follower-kill" // a server that does not lead is killed, and started again
	hangFollower kind = "follower-hang" // a server that does not lead is stopped
	restartAll   kind = "restart"       // all servers are killed at once, and started again
)

// trait is what the planner needs to know of a kind.
type trait struct {
	weight int
	// out is set if the node cannot vote during the fault. forgets is set if it cannot vote for
	// a quarantine after it either.
	out, forgets bool
	server       bool // needs servers that the torture has started
	sentinel     bool // is a fault of a Sentinel
	worker       bool // is a fault of workers
	client       bool // is no fault of a node or worker: a further client comes
	ours         bool // means nothing to another library's lock
}

var traits = map[kind]trait{
	killNode:  {weight: 6, out: true, server: true},
	wipeNode:  {weight: 2, out: true, forgets: true, server: true},
	blackout:  {weight: 10, out: true, forgets: true, server: true},
	hangNode:  {weight: 6, out: true, server: true},
	partition: {weight: 8, out: true},
	split:     {weight: 4},
	latency:   {weight: 6, out: true},
	halfOpen:  {weight: 4, out: true, server: true},
	reset:     {weight: 4, out: true},
	refuse:    {weight: 3, out: true},
	lostReply: {weight: 5, out: true},
	namespace: {weight: 5, out: true, server: true},
	clockStep: {weight: 5, server: true},
	nudge:     {weight: 4, server: true},
	demote:    {weight: 3, out: true, forgets: true, server: true},
	failback:  {weight: 3, out: true, forgets: true, server: true},
	attach:    {weight: 3, server: true},
	settings:  {weight: 3, server: true},
	flush:     {weight: 1, out: true, forgets: true, server: true},
	scripts:   {weight: 3, out: true, server: true},
	restore:   {weight: 2, out: true, forgets: true, server: true},
	admit:     {weight: 3, out: true, server: true, ours: true},
	setOne:    {weight: 1, out: true, forgets: true, server: true, ours: true},
	setAll:    {weight: 6, out: true, forgets: true, server: true, ours: true},
	stop:      {weight: 8, worker: true},
	crash:     {weight: 5, worker: true},
	starve:    {weight: 3, worker: true},
	stranger:  {weight: 4, server: true, client: true, ours: true},
	neighbour: {weight: 3, server: true, client: true, ours: true},

	failover:     {weight: 4, out: true, forgets: true, server: true},
	lag:          {weight: 6, out: true, forgets: true, server: true},
	minority:     {weight: 6, out: true, forgets: true, server: true},
	killSentinel: {weight: 2, server: true, sentinel: true},
	hangSentinel: {weight: 2, server: true, sentinel: true},
	takeover:     {weight: 6, out: true, forgets: true, server: true},
	moveSlot:     {weight: 6, out: true, server: true},
	fixSlots:     {weight: 8, out: true, forgets: true, server: true},
	killFollower: {weight: 4, out: true, server: true},
	hangFollower: {weight: 3, out: true, server: true},
	restartAll:   {weight: 3, out: true, server: true},
}

// independent has the kinds for nodes that are independent servers, in the order in which messages list
// them.
var independent = []kind{
	killNode, wipeNode, blackout, hangNode, partition, split, latency, halfOpen, reset, refuse, lostReply,
	namespace, clockStep, nudge, demote, failback, attach, settings, flush, scripts, restore, admit, setOne, setAll,
	stop, crash, starve, stranger, neighbour,
}

// parseKinds returns the kinds that --faults names, each of which the topology must have. It returns
// nil if names is empty.
func parseKinds(names []string, of Topology) ([]kind, error) {
	var chosen []kind
	for _, name := range names {
		k := kind(strings.TrimSpace(name))
		switch _, known := traits[k]; {
		case !known:
			return nil, invalid("--faults names %q: choose from %s", name, listKinds(of.faults()))
		case !slices.Contains(of.faults(), k):
			return nil, invalid("--faults names %s, which --%s %s does not have: choose from %s", k, of.flag(), of, listKinds(of.faults()))
		}
		if !slices.Contains(chosen, k) {
			chosen = append(chosen, k)
		}
	}
	return chosen, nil
}

func listKinds(ks []kind) string {
	names := make([]string, len(ks))
	for i, k := range ks {
		names[i] = string(k)
	}
	return strings.Join(names, ",")
}
