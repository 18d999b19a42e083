package node

import "github.com/redlatch/redlatch/internal/script"

// shared turns a step for a key, given by its keys and arguments, into a reader's step.
func shared(keys, args []string) []string {
	switch args[0] {
	case script.Acquire:
		args[0] = script.AcquireShared
	case script.Extend:
		args[0] = script.ExtendShared
	case script.Repair:
		args[0] = script.RepairShared
	case script.Confirm:
		args[0] = script.ConfirmShared
	}
	return append(keys, ReadersKey(keys[0]))
}
