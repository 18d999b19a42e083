package vote

import "strings"

// SharedMark begins the value of a key that readers have, and is the holder of it. Who they are lies
// beside the key.
const SharedMark = "redlatch:shared"

// HolderIn is the holder that the value of a key says: of one that readers have it is the same on all
// nodes.
func HolderIn(value string) string {
	if strings.HasPrefix(value, SharedMark+" ") {
		return SharedMark
	}
	return value
}
