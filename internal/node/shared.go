package node

import "github.com/redlatch/redlatch/internal/script"

// shared makes a step for a key, whose keys and arguments are given, that of a reader.
func shared(keys, args []string, is bool) []string {
	if !is {
		return keys
	}
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
