package node

import (
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// together turns a step for one key, given by its keys and arguments, into one for several: it is
// done for the first of keys and all of with, or for none.
func (n *Node) together(keys, args []string, with vote.Keys) []string {
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

// keysOfAll returns the keys of a step for several locks, three for each lock.
func (n *Node) keysOfAll(key string, with vote.Keys) []string {
	const each = 3
	keys := make([]string, 0, each*(1+len(with))+1)
	add := func(key string) { keys = append(keys, key, CounterKey(key), NextKey(key)) }
	add(key)
	for _, key := range with {
		add(key)
	}
	return keys
}
