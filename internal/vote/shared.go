package vote

import "strings"

// SharedMark begins the value of a key that readers have, and is what is named as its holder. Who
// the readers are is in a key beside it.
const SharedMark = "redlatch:shared"

// HolderIn returns the holder that a key's value names. For a key that readers have, that is the
// same on all nodes.
func HolderIn(value string) string {
	if strings.HasPrefix(value, SharedMark+" ") {
		return SharedMark
	}
	return value
}
