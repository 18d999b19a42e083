package node

import "github.com/redlatch/redlatch/internal/hashslot"

// KeyPrefix begins every key that is not a lock.
const KeyPrefix = "redlatch:"

// CounterKey names the side key that holds a lock's fence counter. It lies in
// the record's Cluster hash slot, so that one script may touch both.
func CounterKey(record string) string { return side("token", record) }

// NextKey names the side key that says who was woken up from the lock's wait queue. The
// scripts name the queue's other keys after it.
func NextKey(record string) string { return side("next", record) }

// SideKeys names all keys that a lock may have beside its record.
func SideKeys(record string) []string {
	return []string{CounterKey(record), NextKey(record), side("line", record), side("beat", record)}
}

// sideKeys are CounterKey and NextKey, named in one go.
func sideKeys(record string) (counter, next string) {
	tag := hashslot.Tag(record)
	both := KeyPrefix + "{" + tag + "}:token:" + record + KeyPrefix + "{" + tag + "}:next:" + record
	end := (len(both) + len("token") - len("next")) / 2
	return both[:end], both[end:]
}

func side(kind, record string) string {
	return KeyPrefix + "{" + hashslot.Tag(record) + "}:" + kind + ":" + record
}

// callChannel is where a waiter listens.
func callChannel(waiter string) string { return KeyPrefix + "call:" + waiter }

// deploymentKey names what a deployment has once on every node, or of a Cluster,
// once in every slot that is used: in the slot of tag then.
func deploymentKey(what, deployment, tag string) string {
	if tag == "" {
		return KeyPrefix + "{" + deployment + "}:" + what
	}
	return KeyPrefix + "{" + tag + "}:" + what + ":" + deployment
}

func (n *Node) key(what string) string {
	return deploymentKey(what, n.options.Deployment.Name, n.options.slotTag)
}

func admissionKey(deployment string) string  { return deploymentKey("admitted", deployment, "") }
func recordKey(deployment string) string     { return deploymentKey("deployment", deployment, "") }
func quarantineKey(deployment string) string { return deploymentKey("quarantine", deployment, "") }

// DeploymentKeys names the keys that a deployment has on every node, beside its
// locks' own, where that is no Cluster.
func DeploymentKeys(deployment string) []string {
	return []string{admissionKey(deployment), recordKey(deployment), quarantineKey(deployment)}
}
