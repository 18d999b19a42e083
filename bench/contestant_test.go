package bench

import (
	"context"
)

// locker is a contestant's client, connected.
type locker interface {
	// pair locks name and unlocks it. ctx can end, as a caller's mostly can.
	pair(ctx context.Context, name string) error
	close()
}

// contestant is one way to lock.
type contestant struct {
	name string
	// nodes is over how many independent nodes it can lock at most.
	nodes int
	// key is what it locks a name under.
	key  func(name string) string
	open func(addrs []string) (locker, error)
}

// contestants begin with the floor, by which the others are divided.
var contestants = []contestant{
	{name: "floor", nodes: 5, key: plain, open: openFloor},
	{name: "redlatch", nodes: 5, key: plain, open: openRedlatch(false)},
	{name: "redlatch-quarantine", nodes: 5, key: plain, open: openRedlatch(true)},
	{name: "scripts", nodes: 5, key: plain, open: openScripts},
	{name: "redsync", nodes: 5, key: plain, open: openRedsync},
	{name: "redsync-rueidis", nodes: 5, key: plain, open: openRedsyncRueidis},
	{name: "redislock", nodes: 1, key: plain, open: openRedislock},
	{name: "rueidislock", nodes: 1, key: rueidislockKey, open: openRueidislock},
}

// contestantsOver are those that can lock over so many nodes.
func contestantsOver(nodes int) (able []contestant) {
	for _, c := range contestants {
		if c.nodes >= nodes {
			able = append(able, c)
		}
	}
	return able
}

func plain(name string) string { return name }
