package redlatch

import (
	"path"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/node"
)

// queueKey is the place of the queue among node.SideKeys.
const queueKey = 2

// listed is what tells a lock or a permit from others.
type listed struct {
	name   string
	permit bool
	slot   int
}

// place is where a node has it, and the queue of who waits for it.
type place struct {
	listed
	key, queue string
}

func placeOf(config Config, name string) place {
	key := strings.Replace(config.KeyTemplate, nameMark, name, 1)
	return place{listed{name: name}, key, node.SideKeys(key)[queueKey]}
}

func permitPlace(name, queue string, slot int) place {
	return place{listed{name: name, permit: true, slot: slot}, node.SlotKey(queue, slot), node.SideKeys(queue)[queueKey]}
}

// permitAt is the permit that has the key, if its name matches the pattern.
func permitAt(config Config, pattern, key string) (p place, ok bool) {
	queue, slot, name, ok := node.CutSlot(key)
	number, err := strconv.Atoi(slot)
	if !ok || err != nil {
		return p, false
	}
	before, after, _ := strings.Cut(config.KeyTemplate, nameMark)
	name, ok = strings.CutPrefix(name, before)
	name, ok2 := strings.CutSuffix(name, after)
	match, _ := matches(pattern, name)
	return permitPlace(name, queue, number), ok && ok2 && match
}

// matches reports whether a name matches a pattern of the command KEYS, where a slash is a
// character like any other.
func matches(pattern, name string) (bool, error) {
	plain := func(text string) string { return strings.ReplaceAll(text, "/", "\x00") }
	return path.Match(plain(pattern), plain(name))
}
