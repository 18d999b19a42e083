package sim

import (
	"math/rand/v2"
	"time"
)

// atFirst is for how long no node forgets anything at first: replicas and files get the deployment's record meanwhile.
const atFirst = 5 * time.Second

// prepareChanges draws what is as it is where the deployment is changed: all want one lock, most hold it for
// long, and the settings differ by much. Each change keeps all nodes out for a quarantine, so it takes long.
func (p *Plan) prepareChanges(r *rand.Rand) {
	p.MaxTTL = between(r, 15*time.Second, 25*time.Second).Truncate(time.Millisecond)
	p.Machines, p.Names, p.Length = 3, p.Names[:1], 2*p.Length
	p.TTL, p.shortest, p.longest = p.MaxTTL*3/4, p.MaxTTL/8, p.MaxTTL
	p.Think, p.Abandon, p.Patient, p.Workers = between(r, 100*time.Millisecond, time.Second), 60, 10, 1
	p.quiet = between(r, time.Second, 5*time.Second)
	p.kept = atFirst
	p.world.Judge.Quarantine = p.Quarantine()
}

// OtherMaxTTL returns the MaxTTL of a deployment after a change: the longest, or an eighth of it.
func (p *Plan) OtherMaxTTL(before time.Duration) time.Duration {
	if before == p.MaxTTL {
		return p.MaxTTL / 8
	}
	return p.MaxTTL
}

// Keep has no node forget anything for so long.
func (p *Plan) Keep(d time.Duration) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.kept = p.world.Now() + d
}

// AwaitForgetting waits until nodes may forget again.
func (p *Plan) AwaitForgetting() {
	p.world.mu.Lock()
	kept := p.kept
	p.world.mu.Unlock()
	time.Sleep(kept - p.world.Now())
}

// mayForget reports whether nodes may forget now.
func (p *Plan) mayForget() bool {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	return p.world.Now() >= p.kept
}

// Replicated reports whether the first node has a replica: where the deployment is changed all have, or none.
func (p *Plan) Replicated() bool { return p.world.nodes[0].replicated }

// switchOver has a server be a replica for a while, or another take its place, and nothing is lost.
func (p *Plan) switchOver() { p.Replace(p.rng, false) }

// Replace has one or all of the servers be replicas for a while, or others take their places. lost says that
// these lack the last writes.
func (p *Plan) Replace(r *rand.Rand, lost bool) {
	nodes, moment := p.world.nodes, time.Duration(0)
	if r.IntN(4) == 0 {
		nodes = []*Node{nodes[r.IntN(len(nodes))]}
	}
	if r.IntN(2) == 0 {
		moment = between(r, 0, p.TTL)
	}
	how := r.IntN(3)
	for _, n := range nodes {
		switch {
		case how == 0 && lost:
			n.Promote(0)
		case how == 1:
			n.Demote(moment, lost, 0)
		default:
			n.FailOver(lost, 0)
		}
	}
}

// Restart has all servers restart with all that they have.
func (p *Plan) Restart(r *rand.Rand) {
	for _, n := range p.world.nodes {
		n.Crash(between(r, 0, time.Second), false, 0)
	}
}

// forget has nodes forget, while no settings are changed.
func (p *Plan) forget() {
	if p.mayForget() {
		p.Forget(p.rng)
	}
}

// Forget has one of the nodes that may do so lose all, or one or all of them their last writes.
func (p *Plan) Forget(r *rand.Rand) {
	switch {
	case p.Replicated() && r.IntN(4) > 0:
		p.Replace(r, true)
	case p.forgetful == 0:
	case r.IntN(2) == 0:
		p.world.nodes[r.IntN(p.forgetful)].Flush()
	default:
		p.world.nodes[r.IntN(p.forgetful)].Crash(between(r, 0, p.TTL), true, 0)
	}
}
