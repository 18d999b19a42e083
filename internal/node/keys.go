package node

import "github.com/redlatch/redlatch/internal/hashslot"

// KeyPrefix begins every key that is not a lock.
const KeyPrefix = "redlatch:"

// sideKey names a key beside that of a lock, in its Cluster hash slot, so that one script may touch both.
func sideKey(kind, key string) string {
	return KeyPrefix + "{" + hashslot.Tag(key) + "}:" + kind + ":" + key
}

// CounterKey names the side key that holds a lock's token counter.
func CounterKey(key string) string { return sideKey("token", key) }

// NextKey names the side key that says who was woken up from the lock's wait queue. The
// scripts name the queue's other keys after it.
func NextKey(key string) string { return sideKey("next", key) }

// ReadersKey names the side key that says who has a lock that readers have, and until when.
func ReadersKey(key string) string { return sideKey("readers", key) }

// SideKeys names all keys that a lock may have beside its key.
func SideKeys(key string) []string {
	return []string{CounterKey(key), NextKey(key), sideKey("queue", key), sideKey("heartbeats", key), ReadersKey(key)}
}

// wakeUpChannel names the channel on which a waiter listens.
func wakeUpChannel(waiter string) string { return KeyPrefix + "wake:" + waiter }

// deploymentKey names a key that a deployment has once on every node or, in a Cluster, once in
// every slot that is used: then it lies in the slot of tag.
func deploymentKey(what, deployment, tag string) string {
	if tag == "" {
		return KeyPrefix + "{" + deployment + "}:" + what
	}
	return KeyPrefix + "{" + tag + "}:" + what + ":" + deployment
}

func (n *Node) key(what string) string {
	return deploymentKey(what, n.options.Agreement.Deployment, n.options.slotTag)
}

// deploymentKeys names the keys of the deployment's admission, record and quarantine.
func deploymentKeys(deployment, tag string) []string {
	return []string{deploymentKey("admitted", deployment, tag), deploymentKey("deployment", deployment, tag), deploymentKey("quarantine", deployment, tag)}
}

// DeploymentKeys names the keys that a deployment has on every node that is no Cluster, besides
// those of its locks.
func DeploymentKeys(deployment string) []string { return deploymentKeys(deployment, "") }
