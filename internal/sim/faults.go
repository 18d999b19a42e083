package sim

import (
	"slices"
	"time"
)

// kinds lists the faults of this weather; one that is there twice comes twice as
// often.
func (p *Plan) kinds() []func() {
	network := []func(){p.sever, p.partition, p.partition, p.isolate, p.slow, p.cross}
	servers := []func(){p.crash, p.crash, p.crash, p.crashAll, p.roll, p.hang, p.hang, p.promote, p.promoteAll, p.promoteAll, p.promoteAndCrash, p.promoteAndCrash, p.flush, p.flushAll, p.flushScripts}
	roles := []func(){p.demote, p.demote, p.demoteAll, p.failOver, p.failOver, p.failOver, p.failOverAll, p.attach, p.attach, p.persist, p.persist, p.restartAs, p.backUp, p.backUp, p.restore, p.rename}
	outside := []func(){p.tamper, p.tamper, p.tamper, p.delete, p.foreign, p.foreign, p.foreign, p.fakeCounter}
	processes := []func(){p.pause, p.pause, p.suspend, p.kill}
	clocks := []func(){p.twitch, p.stepMachine}
	kept := slices.Concat(network, processes, []func(){p.stop, p.stop, p.stop, p.stopAll, p.roll, p.hang, p.flushScripts, p.rename}) // nothing is lost
	switch p.Weather {
	case Lossy:
		return network
	case Servers:
		return servers
	case Processes:
		return processes
	case Clocks:
		return slices.Concat(clocks, processes)
	case Torn:
		return []func(){p.cross, p.cross, p.sever, p.slow, p.hang, p.pause}
	case Tight:
		return slices.Concat(network, []func(){p.hang, p.hang, p.pause, p.pause, p.pause, p.pause, p.suspend})
	case Alone:
		return slices.Concat(network, network, servers, roles, processes, processes, clocks)
	case Storm, Sets, Readers, Permits:
		return slices.Concat(network, servers, roles, processes, clocks)
	case Roles:
		return slices.Concat(roles, roles, []func(){p.crash, p.flushScripts, p.hang, p.promote, p.sever})
	case Durable:
		return kept
	case Outside:
		return slices.Concat(outside, outside, []func(){p.crash, p.flushScripts, p.sever, p.hang, p.kill})
	case Changes:
		forget := slices.Repeat([]func(){p.forget}, 3)
		if p.Replicated() {
			forget = append(forget, p.forget, p.forget, p.forget, p.switchOver, p.switchOver, p.switchOver)
		}
		return append(kept, forget...)
	case Stalls, Silent:
		return slices.Concat(network, processes)
	case Replaced:
		return []func(){p.replace}
	case Outlaw:
		return slices.Concat(network, servers, processes, clocks, []func(){p.step, p.step, p.step})
	}
	return nil
}

func (p *Plan) node() *Node { return p.world.nodes[p.rng.IntN(len(p.world.nodes))] }

func (p *Plan) machine() *Machine { return p.Machine(p.rng.IntN(p.Machines)) }

// span draws how long a fault lasts: from less than a step to more than a TTL.
func (p *Plan) span() time.Duration {
	switch p.rng.IntN(3) {
	case 0:
		return between(p.rng, 0, 3*p.NodeTimeout)
	case 1:
		return between(p.rng, 0, p.TTL)
	}
	return between(p.rng, 0, min(2*p.MaxTTL, 10*p.TTL))
}

// after draws after how many commands a fault happens: often right away.
func (p *Plan) after() int { return max(0, p.rng.IntN(10)-4) }

func (p *Plan) sever() { p.machine().Sever(p.node().index) }

func (p *Plan) partition() {
	way := p.rng.IntN(3)
	p.machine().Partition(p.node().index, way != 1, way != 2, p.span())
}

// isolate cuts a machine off, or most of the nodes off from it.
func (p *Plan) isolate() {
	m, d := p.machine(), p.span()
	for _, n := range p.world.nodes {
		if p.rng.IntN(4) > 0 {
			m.Partition(n.index, true, true, d)
		}
	}
}

// cross cuts each machine off from another node, so that their quorums meet in
// few nodes: in one, of three.
func (p *Plan) cross() {
	first, d := p.rng.IntN(len(p.world.nodes)), between(p.rng, 0, 100*p.TTL)
	for i := range p.Machines {
		p.Machine(i).Partition((first+i)%len(p.world.nodes), true, true, d)
	}
}

func (p *Plan) slow() {
	p.machine().Slow(p.node().index, between(p.rng, 0, 2*p.NodeTimeout), p.span())
}

func (p *Plan) crash() { p.node().Crash(p.span(), p.rng.IntN(3) == 0, p.after()) }

// crashAll crashes all nodes at once.
func (p *Plan) crashAll() {
	lost := p.rng.IntN(2) == 0
	for _, n := range p.world.nodes {
		n.Crash(p.span(), lost, 0)
	}
}

// roll restarts one node after the other, as an upgrade does.
func (p *Plan) roll() {
	d := between(p.rng, 10*time.Millisecond, time.Second)
	for i, n := range p.world.nodes {
		p.world.schedule.after(time.Duration(i)*(d+100*time.Millisecond), func() { n.Crash(d, false, 0) })
	}
}

func (p *Plan) hang() { p.node().Hang(p.span()) }

func (p *Plan) promote() { p.node().Promote(p.after()) }

// promoteAll replaces all servers by their replicas, as the loss of a site does.
func (p *Plan) promoteAll() {
	after := p.after()
	for _, n := range p.world.nodes {
		n.Promote(after)
	}
}

// promoteAndCrash replaces a server, or all, by a replica which soon crashes
// too.
func (p *Plan) promoteAndCrash() {
	nodes := p.world.nodes
	if p.rng.IntN(2) == 0 {
		nodes = []*Node{p.node()}
	}
	down, after := between(p.rng, 10*time.Millisecond, 300*time.Millisecond), p.after()
	for _, n := range nodes {
		n.Promote(after)
		p.world.schedule.after(between(p.rng, 10*time.Millisecond, time.Second), func() { n.Crash(down, false, 0) })
	}
}

// stop crashes a node whose disk keeps all, and stopAll all of them.
func (p *Plan) stop() { p.node().Crash(p.span(), false, p.after()) }

func (p *Plan) stopAll() {
	for _, n := range p.world.nodes {
		n.Crash(p.span(), false, 0)
	}
}

// replace has a master's host stand still, with a client on it: for less than the lock may last.
func (p *Plan) replace() {
	d := between(p.rng, p.MaxTTL/2, p.MaxTTL)
	p.node().Replace(d, between(p.rng, 0, 500*time.Millisecond))
}

func (p *Plan) lost() bool { return p.rng.IntN(3) > 0 }

// moment draws how long a change of roles takes: often as short as can be.
func (p *Plan) moment() time.Duration {
	if p.rng.IntN(2) == 0 {
		return 0
	}
	return p.span()
}

func (p *Plan) demote() { p.node().Demote(p.moment(), p.lost(), p.after()) }

func (p *Plan) demoteAll() {
	lost, after := p.lost(), p.after()
	for _, n := range p.world.nodes {
		n.Demote(p.moment(), lost, after)
	}
}

// failOver has a replica take a master's place, and perhaps give it back soon.
func (p *Plan) failOver() {
	n, lost := p.node(), p.lost()
	n.FailOver(lost, p.after())
	if p.rng.IntN(2) == 0 {
		p.world.schedule.after(p.span(), func() { n.FailOver(lost, 0) })
	}
}

func (p *Plan) failOverAll() {
	lost, after := p.lost(), p.after()
	for _, n := range p.world.nodes {
		n.FailOver(lost, after)
	}
}

func (p *Plan) attach() { p.node().Attach(p.rng.IntN(3) > 0) }

func (p *Plan) persist() { p.node().Persist(Durability(p.rng.IntN(int(durabilities)))) }

func (p *Plan) restartAs() {
	p.node().RestartAs(Durability(p.rng.IntN(int(durabilities))), p.span())
}

func (p *Plan) backUp() { p.node().BackUp() }

func (p *Plan) restore() { p.node().Restore(p.span()) }

func (p *Plan) rename() { p.node().Rename() }

func (p *Plan) name() string { return p.Names[p.rng.IntN(len(p.Names))] }

// key draws what somebody deletes or overwrites.
func (p *Plan) key() string {
	keys := p.Keys()
	return keys[p.rng.IntN(len(keys))]
}

// queue draws whose wait queue somebody touches.
func (p *Plan) queue() string {
	name := p.name()
	if p.Permits > 0 && p.rng.IntN(2) == 0 {
		return permitsKey(name)
	}
	return name
}

func (p *Plan) tamper() { p.node().Tamper(p.rng, p.queue()) }

func (p *Plan) delete() { p.node().Delete(p.key()) }

func (p *Plan) foreign() {
	ttl := between(p.rng, 10*time.Millisecond, p.MaxTTL).Truncate(time.Millisecond)
	p.world.Foreign(p.name(), ttl, between(p.rng, 0, ttl))
}

func (p *Plan) fakeCounter() {
	p.world.FakeCounter(p.key(), between(p.rng, 10*time.Millisecond, p.MaxTTL))
}

func (p *Plan) flushAll() {
	for _, n := range p.world.nodes {
		n.Flush()
	}
}

func (p *Plan) flush() { p.node().Flush() }

func (p *Plan) flushScripts() { p.node().FlushScripts(p.Weather != Changes) }

func (p *Plan) pause() { p.machine().Pause(p.span(), false) }

func (p *Plan) suspend() { p.machine().Pause(p.span(), true) }

func (p *Plan) kill() { p.machine().Kill() }

// twitch steps a node's clock by what the drift allows beside the rates.
func (p *Plan) twitch() {
	n, now := p.node(), p.world.Now()
	if now-n.twitched < 2*p.MaxTTL {
		return
	}
	n.twitched = now
	n.StepWall(time.Duration(1-2*p.rng.IntN(2)) * time.Millisecond)
}

// stepMachine steps a machine's wall clock, by which no lock is kept.
func (p *Plan) stepMachine() { p.machine().StepWall(between(p.rng, -time.Hour, time.Hour)) }

// step sets a node's wall clock off by seconds: less than what tokens bear when
// nodes forget, more than locks do.
func (p *Plan) step() {
	n := p.node()
	off := between(p.rng, -2*time.Second, 2*time.Second)
	n.StepWall(off - n.stepped)
	n.stepped = off
}
