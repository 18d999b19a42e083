package node

import (
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// together makes a step for one key, whose keys and arguments are given, one that is done for
// several: for the first of keys and all of with, or for none. Without others the step stays as it
// is.
func (n *Node) together(keys, args []string, with *vote.Keys) []string {
	if with == nil {
		return keys
	}
	admitted := true
	switch args[0] {
	case script.Acquire:
		args[0] = script.AcquireAll
	case script.Extend:
		args[0] = script.ExtendAll
	case script.Repair:
		args[0] = script.RepairAll
	case script.Confirm:
		args[0], admitted = script.ConfirmAll, false
	}
	keys = n.keysOfAll(keys[0], with)
	if admitted {
		keys = append(keys, n.admissionKey)
	}
	return keys
}

// keysOfAll names the keys that a step for several locks is about, three of each.
func (n *Node) keysOfAll(key string, with *vote.Keys) []string {
	const each = 3
	keys := make([]string, 0, each*(1+len(*with))+1)
	add := func(key string) {
		counter, next := vote.Words{}.SideKeys(key)
		keys = append(keys, key, counter, next)
	}
	add(key)
	for _, key := range *with {
		add(key)
	}
	return keys
}
