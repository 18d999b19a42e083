package script

import (
	"regexp"
	"slices"
)

var call = regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`)

// Commands returns the commands that the scripts send, in order: what a user must be permitted
// besides running the scripts. It leaves out what epoch.lua and nodes.lua send to a Cluster alone.
func Commands() []string {
	var commands []string
	for _, text := range []string{admittedLua, acquireLua, extendLua, confirmLua, repairLua, admitLua, releaseLua, publishLua, notifyLua, queueLua, releaseQueuedLua, enqueueLua, inspectLua, lookLua,
		acquireAllLua, confirmAllLua, extendAllLua, repairAllLua, releaseAllLua, heldLua, slotsLua, slotLua, releaseSlotLua,
		readersLua, readersQueueLua, acquireSharedLua, confirmSharedLua, extendSharedLua, repairSharedLua, releaseSharedLua} {
		for _, found := range call.FindAllStringSubmatch(text, -1) {
			commands = append(commands, found[1])
		}
	}
	slices.Sort(commands)
	return slices.Compact(commands)
}
