package topology

import (
	"context"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// whatLoses returns the events after which the slot's master may have none of the locks that were held.
func (c *clusterChain) whatLoses() []event {
	return []event{
		{"restart, empty", func() { must(c.T, c.RestartEmpty(c.soon(), c.at())) }},
		{"restart, with old data", func() { c.restartWithOld(c.at()) }},
		{"FLUSHALL", func() { c.redis(c.at(), "FLUSHALL") }},
		{"SCRIPT FLUSH, FLUSHALL, RESETSTAT", func() {
			at := c.at()
			c.redis(at, "SCRIPT", "FLUSH")
			c.redis(at, "FLUSHALL")
			c.redis(at, "CONFIG", "RESETSTAT")
		}},
		{"FORCE", func() { c.force() }},
		{"FORCE, there and back", func() { c.force(); c.force() }},
		{"FORCE, and the slot moves", func() { c.force(); c.move(c.other()) }},
		{"restart with old data, and the slot moves", func() { c.restartWithOld(c.at()); c.settle(); c.move(c.other()) }},
		{"FORCE, RESETSTAT", func() { c.force(); c.redis(c.at(), "CONFIG", "RESETSTAT") }},
		{"killed, and replaced", func() { c.replace(func(s *redistest.Server) { must(c.T, c.RestartEmpty(c.soon(), s)) }) }},
		{"killed, replaced, and back with old data", func() { c.replace(c.restartWithOld) }},
		{"halted, replaced, and goes on", c.halted},
		{"halted, replaced, goes on, and is promoted again", func() { c.halted(); c.settle(); c.failOver() }},
		{"the slot is given away without its keys", func() { must(c.T, c.GiveSlots(c.soon(), c.other(), c.slot())) }},
		{"the slot is given away without its keys, and back", func() {
			at := c.at()
			must(c.T, c.GiveSlots(c.soon(), c.other(), c.slot()))
			c.uses()
			must(c.T, c.GiveSlots(c.soon(), at, c.slot()))
		}},
		{"fix of a dead master", c.fix},
	}
}

// whatOperatorsDo returns what leaves the locks alone.
func (c *clusterChain) whatOperatorsDo() []event {
	return []event{
		{"failover", c.failOver},
		{"failover, there and back", func() { c.failOver(); c.failOver() }},
		{"failover of another", func() { c.promote(c.other(), false) }},
		{"the slot moves", func() { c.move(c.other()) }},
		{"the slot moves, there and back", func() { at := c.at(); c.move(c.other()); c.move(at) }},
		{"the slot moves to a new master", func() { c.move(c.newMaster()) }},
		{"the slot moves to a new master and back", func() { at := c.at(); c.move(c.newMaster()); c.move(at) }},
		{"a move while the slot is used", c.moveInUse},
		{"a master joins", func() { c.newMaster() }},
		{"RESET SOFT of the new master", c.reset},
		{"RESET SOFT of the replica", c.resetReplica},
		{"FLUSHALL on another", func() { c.redis(c.other(), "FLUSHALL") }},
		{"restart of another, empty", func() { must(c.T, c.RestartEmpty(c.soon(), c.other())) }},
		{"BUMPEPOCH", func() { c.redis(c.at(), "CLUSTER", "BUMPEPOCH") }},
		{"SAVE, restart", func() { at := c.at(); c.redis(at, "SAVE"); at.Kill(); must(c.T, c.Restart(c.soon(), at)) }},
	}
}

// whatServersDo returns what leaves the keys and slots alone.
func (c *clusterChain) whatServersDo() []event {
	each := func(args ...string) func() {
		return func() {
			for _, s := range c.Living() {
				c.redis(s, args...)
			}
		}
	}
	return []event{
		{"RESETSTAT", each("CONFIG", "RESETSTAT")},
		{"SCRIPT FLUSH", each("SCRIPT", "FLUSH")},
		{"CLIENT KILL", each("CLIENT", "KILL", "TYPE", "normal")},
		{"a halt", func() { c.halt(c.at()) }},
		{"a halt of another", func() { c.halt(c.other()) }},
		{"CLIENT PAUSE", func() { c.redis(c.at(), "CLIENT", "PAUSE", "500") }},
		{"a while", func() { c.rest(c.d) }},
	}
}

func (c *clusterChain) slot() int { return storm.SlotOf(c.name) }

// at returns the master that has the lock's slot.
func (c *clusterChain) at() *redistest.Server {
	c.Helper()
	s, err := c.Owner(c.slot())
	must(c.T, err)
	return s
}

// other returns a master that has slots but not the lock's.
func (c *clusterChain) other() *redistest.Server {
	c.Helper()
	at := c.at()
	var others []*redistest.Server
	for _, s := range c.Living() {
		slots, err := c.SlotsOf(s)
		must(c.T, err)
		if len(slots) > 0 && s != at {
			others = append(others, s)
		}
	}
	return others[c.rng.IntN(len(others))]
}

// newMaster returns the master that has come, which comes now if it has not yet.
func (c *clusterChain) newMaster() *redistest.Server {
	c.Helper()
	if c.small == nil {
		c.small = c.NewMaster(c.T)
	}
	return c.small
}

// lag keeps what is written at the slot's master from now on from its replica.
func (c *clusterChain) lag() {
	c.Helper()
	if c.lags != nil {
		return
	}
	c.lags = c.at()
	must(c.T, c.HoldReplication(c.soon(), c.lags, true))
}

func (c *clusterChain) catchUp() {
	c.Helper()
	if c.lags != nil {
		must(c.T, c.HoldReplication(c.soon(), c.lags, false))
	}
	c.lags = nil
}

// promote has a replica of the master take its place, if there is one.
func (c *clusterChain) promote(master *redistest.Server, force bool) {
	c.Helper()
	replicas, err := c.ReplicasOf(master)
	must(c.T, err)
	if len(replicas) == 0 {
		c.Log("no replica")
		return
	}
	if force {
		c.elect(replicas[0], c.FailOverByForce)
		c.catchUp()
	} else {
		c.catchUp()
		c.settle()
		c.elect(replicas[0], c.FailOver)
	}
	c.settle()
}

// elect has a replica take its master's place. One that was elected less than four times the node timeout ago would take the
// votes of then for those of now, and the masters disagree for ever.
func (c *clusterChain) elect(replica *redistest.Server, promote func(context.Context, *redistest.Server) error) {
	c.Helper()
	storm.Rest(c.Context(), time.Until(c.elected[replica].Add(10*time.Second)))
	must(c.T, promote(c.soon(), replica))
	c.elected[replica] = time.Now()
}

func (c *clusterChain) failOver() { c.Helper(); c.promote(c.at(), false) }
func (c *clusterChain) force()    { c.Helper(); c.promote(c.at(), true) }

// replica returns one of the master, nil if there is none.
func (c *clusterChain) replica(master *redistest.Server) *redistest.Server {
	c.Helper()
	replicas, err := c.ReplicasOf(master)
	must(c.T, err)
	if len(replicas) == 0 {
		c.Log("no replica")
		return nil
	}
	return replicas[0]
}

// replace has the slot's master die, its replica take its place, and the master come back.
func (c *clusterChain) replace(restart func(*redistest.Server)) {
	c.Helper()
	at := c.at()
	if replica := c.replica(at); replica != nil {
		at.Kill()
		c.elect(replica, c.FailOverByForce)
		restart(at)
	} else {
		restart(at)
	}
	c.lags = nil
}

// halted has the slot's master stand still while its replica takes its place.
func (c *clusterChain) halted() {
	c.Helper()
	at := c.at()
	replica := c.replica(at)
	must(c.T, at.Pause())
	if replica != nil {
		c.elect(replica, c.FailOverByForce)
	}
	c.rest(c.d)
	must(c.T, at.Resume())
	c.catchUp()
}

func (c *clusterChain) halt(s *redistest.Server) {
	c.Helper()
	must(c.T, s.Pause())
	c.rest(4 * time.Second)
	must(c.T, s.Resume())
}

func (c *clusterChain) restartWithOld(s *redistest.Server) {
	c.Helper()
	if c.lags == s {
		c.lags = nil
	}
	if old, ok := c.old[s]; ok {
		must(c.T, c.RestartWith(c.soon(), s, old))
	} else {
		must(c.T, c.RestartEmpty(c.soon(), s))
	}
}

// fix has the slot's master and its replica die, others get their slots, and the two come back.
func (c *clusterChain) fix() {
	c.Helper()
	at := c.at()
	replica := c.replica(at)
	at.Kill()
	if replica != nil {
		replica.Kill()
	}
	_, err := c.Fix(c.soon())
	must(c.T, err)
	must(c.T, c.Restart(c.soon(), at))
	if replica != nil {
		must(c.T, c.Restart(c.soon(), replica))
	}
	c.lags = nil
	c.settle()
	// It gets others again: of two masters both would have to live.
	var slots []int
	for slot := range c.slot() {
		slots = append(slots, slot)
	}
	must(c.T, c.GiveSlots(c.soon(), at, slots...))
}

// move moves the lock's slot with its keys. It is used before, else what came with an earlier move would count, and after.
func (c *clusterChain) move(to *redistest.Server) {
	c.Helper()
	c.settle()
	c.uses()
	must(c.T, c.MoveSlot(c.soon(), c.slot(), to, nil))
	c.settle()
	c.uses()
}

// moveInUse moves it while clients lock, extend and release there.
func (c *clusterChain) moveInUse() {
	c.Helper()
	c.uses()
	must(c.T, c.MoveSlot(c.soon(), c.slot(), c.other(), func(string) {
		if c.held != nil {
			_ = c.held.Extend(c.Context(), chainTTL)
		}
		if lock, err := c.idle.TryLock(c.Context(), "{"+c.name+"}used"); err == nil {
			_ = lock.Unlock(c.Context())
		}
	}))
}

// rest waits for a time up to d.
func (c *clusterChain) rest(d time.Duration) {
	storm.Rest(c.Context(), time.Duration(c.rng.Int64N(int64(d))))
}

// meet introduces s to all others, until they know it: on a busy machine an introduction may be given up.
func (c *clusterChain) meet(s *redistest.Server) {
	c.Helper()
	locktest.Await(c.T, "all know each other", func() bool {
		for _, other := range c.Living() {
			if other != s {
				c.redis(other, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(s.Port()))
			}
		}
		ctx, cancel := context.WithTimeout(c.Context(), 3*time.Second)
		defer cancel()
		return c.AwaitAgreement(ctx) == nil
	})
}

// reset empties the new master, and resets it. It joins again.
func (c *clusterChain) reset() {
	c.Helper()
	s := c.newMaster()
	if c.at() == s {
		c.move(c.other())
	}
	c.settle()
	c.redis(s, "CLUSTER", "RESET", "SOFT")
	c.meet(s)
}

// resetReplica resets the replica of the slot's master, which follows it again.
func (c *clusterChain) resetReplica() {
	c.Helper()
	at := c.at()
	replica := c.replica(at)
	if replica == nil {
		return
	}
	c.catchUp()
	c.redis(replica, "CLUSTER", "RESET", "SOFT")
	c.meet(replica)
	must(c.T, c.Follow(c.soon(), replica, at))
}
