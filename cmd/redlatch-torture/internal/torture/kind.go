//go:build linux

package torture

import (
	"slices"
	"strings"
)

// kind is a sort of fault.
type kind string

const (
	killNode  kind = "kill"       // kill -9, started again with its data
	wipeNode  kind = "wipe"       // kill -9, started again without
	blackout  kind = "blackout"   // a majority wiped at once
	hangNode  kind = "hang"       // SIGSTOP
	partition kind = "partition"  // nothing passes, one way or both
	split     kind = "split"      // half of the workers cut off from a majority
	latency   kind = "latency"    // delay and jitter
	halfOpen  kind = "half-open"  // the node closed its connections, no client was told
	reset     kind = "reset"      // connections reset
	refuse    kind = "refuse"     // connections reset, new ones refused
	lostReply kind = "lost-reply" // commands executed, connection reset before the reply
	namespace kind = "namespace"  // a network namespace's link goes down, or loses replies
	clockStep kind = "clock"      // the node's clock is stepped, and stepped back
	nudge     kind = "nudge"      // the same, within the drift
	demote    kind = "demote"     // a replica of nobody for a while, and a master again in the same process
	failback  kind = "failback"   // a replica is promoted, then the former master again, in its process, with what the other has
	attach    kind = "attach"     // a replica comes, and goes
	settings  kind = "settings"   // a setting of the server's is changed while it runs, and changed back
	flush     kind = "flush"      // all keys are deleted while the server runs
	scripts   kind = "scripts"    // all its scripts are
	restore   kind = "restore"    // kill -9, started again with a copy of its data from before
	admit     kind = "admit"      // an operator admits a node that has forgotten nothing, or one that must not vote
	setOne    kind = "set"        // one node is given another MaxTTL of the deployment, and later the former one
	setAll    kind = "set-all"    // all nodes are, and a worker comes that has it too
	stop      kind = "stop"       // a worker stopped for longer than its TTL
	crash     kind = "crash"      // a worker killed; another takes its place
	starve    kind = "starve"     // a few workers get a tenth of the CPU
	stranger  kind = "stranger"   // a client comes whose settings are not the deployment's
	neighbour kind = "neighbour"  // a worker of another deployment comes, for the same locks
)

// Those of a node that several servers make up. There killNode, wipeNode and
// hangNode befall a master, or the leader of an ensemble.
const (
	failover     kind = "failover"      // a replica is promoted by order, its master alive
	lag          kind = "lag"           // the replicas are behind when one is promoted
	minority     kind = "minority"      // the master, one Sentinel and half of the workers are cut off from the rest
	killSentinel kind = "sentinel-kill" // a Sentinel is killed, and started again
	hangSentinel kind = "sentinel-hang" // a Sentinel is stopped
	takeover     kind = "takeover"      // a replica takes its master's place without asking, and the other way again
	moveSlot     kind = "move"          // a slot is moved to another master key by key, and back
	fixSlots     kind = "fix"           // a master died, and its slots are given to others without their keys
	killFollower kind = "follower-kill" // a server that does not lead is killed, and started again
	hangFollower kind = "follower-hang" // one is stopped
	restartAll   kind = "restart"       // all servers are killed at once, and started again
)

// trait is what the planner has to know of a kind.
type trait struct {
	weight int
	// out: the node cannot vote meanwhile. forgets: nor for the quarantine
	// after it.
	out, forgets bool
	server       bool // needs servers of the torture's own
	sentinel     bool // befalls a Sentinel
	worker       bool // befalls workers
	client       bool // befalls nobody: somebody else comes
	// ours: means nothing to another library's lock.
	ours bool
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

// independent are the kinds that befall servers which know nothing of each other,
// in the order in which they are shown.
var independent = []kind{
	killNode, wipeNode, blackout, hangNode, partition, split, latency, halfOpen, reset, refuse, lostReply,
	namespace, clockStep, nudge, demote, failback, attach, settings, flush, scripts, restore, admit, setOne, setAll,
	stop, crash, starve, stranger, neighbour,
}

// parseKinds reads what --faults says, nil for all that the topology has.
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
