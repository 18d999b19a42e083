package locktest

import "fmt"

// SlotKey is the key of a slot of name's permits, as servers have it; PermitsKey, that of their queue. A
// name without braces is its own tag.
func SlotKey(name string, slot int) string {
	return fmt.Sprintf("redlatch:{%[1]s}:permit:%d:%[1]s", name, slot)
}

// PermitsKey is the key of the queue for name's permits, at which nothing is stored.
func PermitsKey(name string) string { return fmt.Sprintf("redlatch:{%[1]s}:permit::%[1]s", name) }
