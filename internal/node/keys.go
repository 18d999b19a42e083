package node

import "github.com/redlatch/redlatch/internal/hashslot"

// KeyPrefix begins every key that is not a lock.
const KeyPrefix = "redlatch:"

// CounterKey names the side key that holds a lock's fence counter. It lies in
// the record's Cluster hash slot, so that one script may touch both.
func CounterKey(record string) string {
	return KeyPrefix + "{" + hashslot.Tag(record) + "}:token:" + record
}

// The keys a deployment has once on every node.
func admissionKey(deployment string) string  { return KeyPrefix + "{" + deployment + "}:admitted" }
func recordKey(deployment string) string     { return KeyPrefix + "{" + deployment + "}:deployment" }
func pulseKey(deployment string) string      { return KeyPrefix + "{" + deployment + "}:pulse" }
func quarantineKey(deployment string) string { return KeyPrefix + "{" + deployment + "}:quarantine" }
