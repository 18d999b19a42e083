// Package script holds the atomic steps that run on a node, and composes them
// into the scripts that are sent.
//
// The steps that make a node vote are one script: a node either knows all of them or none. A
// server's script cache does not survive a restart or a promotion (Redis ≥ 7.0, Valkey ≥ 7.2), so a
// node that may have forgotten locks answers NOSCRIPT until somebody admits it anew. The cache does
// survive when a master is demoted and promoted again in one process; the steps find that out
// themselves (admitted.lua).
package script

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"
)

// The first argument of a voting script, which chooses the step.
const (
	Acquire = "acquire"
	Extend  = "extend"
	Confirm = "confirm"
	Repair  = "repair"
	Admit   = "admit"
	Enqueue = "enqueue"

	// Steps of several callers in one command.
	Batch       = "batch"
	ExtendBatch = "extend-batch"

	// Steps for several keys that are locked as one.
	AcquireAll = "acquire-all"
	ConfirmAll = "confirm-all"
	ExtendAll  = "extend-all"
	RepairAll  = "repair-all"

	// Steps of readers, who have a key together.
	AcquireShared = "acquire-shared"
	ConfirmShared = "confirm-shared"
	ExtendShared  = "extend-shared"
	RepairShared  = "repair-shared"
	// Slot grants one of several slots; EnqueueSlot is Enqueue for a waiter that wants one of them.
	Slot        = "slot"
	EnqueueSlot = "enqueue-slot"
)

// Clamp is how far from a node's own clock a proposed counter may be. So only the nodes' clocks
// matter for what a counter can be after a node has lost its memory.
const Clamp = time.Second

// A waiter that is woken up has Grace to take the lock before the next one is woken up. A waiter
// that was not heard of for Patience loses its place in the wait queue.
const (
	Grace    = 500 * time.Millisecond
	Patience = 5 * time.Second
)

// MaxSlots bounds the permits of a name: a node looks at all of them in one step.
const MaxSlots = 256

// shown bounds, in bytes, what a step answers of a holder id, none of which is that long. A key with
// a lock's name may be a foreign program's, whose value could keep all other answers on the
// connection waiting, or be more than a connection takes.
const shown = 1 << 10

// fresh is how long after a look at the server's replication id the steps do without another. In a
// Cluster every step looks, and notes it once per clusterRenew.
const (
	fresh        = 2 * time.Millisecond
	clusterRenew = time.Second
)

// MaxCounter bounds a token counter: up to 2^53, a double can tell it from the next. Clocks reach
// it in the year 2255.
const MaxCounter = 1<<53 - 1

var (
	//go:embed admitted.lua
	admittedLua string
	//go:embed acquire.lua
	acquireLua string
	//go:embed prolong.lua
	prolongLua string
	//go:embed raise.lua
	raiseLua string
	//go:embed extend.lua
	extendLua string
	//go:embed confirm.lua
	confirmLua string
	//go:embed repair.lua
	repairLua string
	//go:embed moving.lua
	movingLua string
	//go:embed epoch.lua
	epochLua string
	//go:embed looked.lua
	lookedLua string
	//go:embed admit.lua
	admitLua string
	//go:embed mark.lua
	markLua string
	//go:embed release.lua
	releaseLua string
	//go:embed publish.lua
	publishLua string
	//go:embed notify.lua
	notifyLua string
	//go:embed release_queued.lua
	releaseQueuedLua string
	//go:embed queue.lua
	queueLua string
	//go:embed enqueue.lua
	enqueueLua string
	//go:embed batch.lua
	batchLua string
	//go:embed extend_batch.lua
	extendBatchLua string
	//go:embed acquire_all.lua
	acquireAllLua string
	//go:embed confirm_all.lua
	confirmAllLua string
	//go:embed extend_all.lua
	extendAllLua string
	//go:embed repair_all.lua
	repairAllLua string
	//go:embed release_all.lua
	releaseAllLua string
	//go:embed readers.lua
	readersLua string
	//go:embed readers_queue.lua
	readersQueueLua string
	//go:embed acquire_shared.lua
	acquireSharedLua string
	//go:embed confirm_shared.lua
	confirmSharedLua string
	//go:embed extend_shared.lua
	extendSharedLua string
	//go:embed repair_shared.lua
	repairSharedLua string
	//go:embed release_shared.lua
	releaseSharedLua string
	//go:embed held.lua
	heldLua string
	//go:embed slots.lua
	slotsLua string
	//go:embed slot.lua
	slotLua string
	//go:embed release_slot.lua
	releaseSlotLua string
	//go:embed quarantine.lua
	quarantineLua string
	//go:embed barrier.lua
	barrierLua string
	//go:embed inspect.lua
	inspectLua string
	//go:embed look.lua
	lookLua string
	//go:embed nodes.lua
	nodesLua string
	//go:embed shard.lua
	shardLua string
)

// Script is a text and the name by which a server knows it once it is loaded.
type Script struct{ Text, SHA string }

// New returns the script of a text, named as a server names it.
func New(text string) Script {
	sum := sha1.Sum([]byte(text))
	return Script{Text: text, SHA: hex.EncodeToString(sum[:])}
}

// Releasing is the compare-and-delete. It gives nothing away, so it may be loaded on any node at
// any time. Lua makes a script's functions anew in each run, so those that the usual paths do
// without come behind these paths.
var Releasing = New(limits + releaseLua + publishLua + notifyLua + queueLua + releaseQueuedLua)

// ReleasingAll is Releasing for several keys at once.
var ReleasingAll = New(limits + publishLua + queueLua + releaseAllLua)

// ReleasingShared is Releasing for a reader.
var ReleasingShared = New(limits + publishLua + queueLua + raiseLua + readersLua + releaseSharedLua)

// ReleasingSlot is Releasing for a slot.
var ReleasingSlot = New(limits + fmt.Sprintf("local SLOTS = %d\n", MaxSlots) + publishLua + queueLua + slotsLua + releaseSlotLua)

var limits = fmt.Sprintf("local GRACE, PATIENCE, SHOWN = %d, %d, %d\n", Grace.Milliseconds(), Patience.Milliseconds(), shown)

// Inspect reads what admission depends on.
var Inspect = New(inspectLua)

// Look reads keys of locks.
var Look = New(limits + lookLua)

// Quarantine keeps a node out of the vote, and may store a new description of its deployment. It
// lets nobody vote, so it may be loaded on any node at any time.
var Quarantine = New(lookedLua + quarantineLua)

// Mark is for a node that is to be admitted and has nothing yet that an admission compares. It lets
// nobody vote.
var Mark = New(lookedLua + markLua)

// Barrier goes before a WAIT.
var Barrier = New(barrierLua)

// Nodes reads what a Cluster's master knows of the Cluster, and Shard records which slots the
// master has. Like Quarantine, they let nobody vote.
var (
	Nodes = New(nodesLua)
	Shard = New(lookedLua + shardLua)
)

// Voted is loaded on a server when a client of the deployment has admitted it, whatever that client's version: its text
// must never change. A server that knows it may have voted in its present run.
func Voted(deployment string) Script {
	return New(fmt.Sprintf("-- redlatch deployment %s\nreturn 1\n", deployment))
}

// Voting composes the voting script of a deployment, whose name consists of letters, digits, dots
// and dashes. A node that knows the script was admitted by a client of that deployment and version in
// its present run.
func Voting(deployment string) Script { return voting(deployment, fresh, fresh) }

// ClusterVoting is Voting for the masters of a Cluster.
func ClusterVoting(deployment string) Script {
	return voting(deployment, -time.Microsecond, clusterRenew)
}

func voting(deployment string, fresh, renew time.Duration) Script {
	return New(fmt.Sprintf("-- deployment %s\nlocal CLAMP, COUNTERS = %d, %d\nlocal FRESH, RENEW = %d, %d\n", deployment,
		Clamp.Microseconds(), int64(MaxCounter), fresh/time.Microsecond, renew.Microseconds()) + votingSteps())
}

// votingSteps is what the voting scripts of all deployments have in common.
var votingSteps = sync.OnceValue(func() string {
	steps := []struct{ name, body string }{
		{Acquire, admittedLua + acquireLua},
		{Extend, admittedLua + prolongLua + extendLua},
		{Confirm, confirmLua},
		{Repair, admittedLua + raiseLua + repairLua},
		{Admit, epochLua + lookedLua + admitLua},
		{Batch, admittedLua + batchLua},
		{ExtendBatch, admittedLua + prolongLua + extendBatchLua},
		// The queue's functions are made only for the steps that need them.
		{Enqueue, admittedLua + publishLua + queueLua + readersQueueLua + heldLua + enqueueLua},
		{AcquireAll, admittedLua + publishLua + queueLua + acquireAllLua},
		{ConfirmAll, confirmAllLua},
		{ExtendAll, admittedLua + prolongLua + raiseLua + extendAllLua},
		{RepairAll, admittedLua + prolongLua + raiseLua + repairAllLua},
		{AcquireShared, admittedLua + publishLua + queueLua + readersQueueLua + readersLua + acquireSharedLua},
		{ConfirmShared, raiseLua + readersLua + confirmSharedLua},
		{ExtendShared, admittedLua + raiseLua + readersLua + extendSharedLua},
		{RepairShared, admittedLua + raiseLua + readersLua + repairSharedLua},
		{Slot, admittedLua + publishLua + queueLua + slotsLua + "local function acquire(KEYS, ARGV)\n" + acquireLua + "end\n" + slotLua},
		{EnqueueSlot, admittedLua + publishLua + queueLua + readersQueueLua + slotsLua + enqueueLua},
	}
	var text strings.Builder
	text.WriteString(limits + movingLua)
	word := "if"
	for _, step := range steps {
		fmt.Fprintf(&text, "%s ARGV[1] == '%s' then\n%s", word, step.name, step.body)
		word = "elseif"
	}
	text.WriteString("end\nreturn redis.error_reply('REDLATCH no such step: ' .. ARGV[1])\n")
	return text.String()
})
