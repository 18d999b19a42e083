//go:build linux

package torture

import (
	"cmp"
	"slices"
	"time"
)

const (
	// failoverTime is how long a failover takes at most.
	failoverTime = 2 * time.Second
	// settling is the least time from the end of a fault of a composed node to the next one.
	settling = time.Second
)

// planComposed draws the faults of a node that several servers make up, sorted by time. Each kind comes
// once at first, in a random order; after that, kinds are drawn by weight. Faults of masters
// come one after the other. Faults of Sentinels come at the same time, except during a
// minority, and those of workers and clients at any time.
func (s setting) planComposed() []item {
	p := newPlanner(s)
	masters := p.ofMasters()
	items := slices.Concat(masters, p.ofSentinels(masters), p.ofWorkers(), p.ofClients())
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(a.at, b.at) })
	return items
}

// overture returns the kinds whose trait is such a one, in a random order. Each of them comes once before
// kinds are drawn by weight.
func (p *planner) overture(such func(trait) bool) []kind {
	ks := slices.DeleteFunc(slices.Clone(p.kinds), func(k kind) bool { return !such(traits[k]) })
	p.rand.Shuffle(len(ks), func(i, j int) { ks[i], ks[j] = ks[j], ks[i] })
	return ks
}

// ofMasters draws the faults of masters. Most of them come only when a part is up again after its
// last fault, so that workers hold locks that could be lost. Some do not wait for that.
func (p *planner) ofMasters() []item {
	all := p.overture(func(t trait) bool { return !t.worker && !t.sentinel && !t.client })
	if len(all) == 0 {
		return nil
	}
	first := slices.Clone(all)
	// The minority, which takes longest, comes first, or there might be no time for it. Next are the
	// faults that are over at once.
	for _, k := range []kind{lostReply, reset, minority} {
		if i := slices.Index(first, k); i > 0 {
			first = slices.Concat([]kind{k}, first[:i], first[i+1:])
		}
	}
	if p.control {
		telling := p.topology.telling()
		first = append(telling, slices.DeleteFunc(first, func(k kind) bool { return slices.Contains(telling, k) })...)
	}
	end := p.length - p.tail()
	out := make([]time.Duration, p.topology.parts()+1) // by part, from 1
	var items []item
	for t := 2 * settling; t < end; {
		k := kind("")
		if len(first) > 0 {
			k = first[0]
		} else {
			k = p.drawOf(all)
		}
		it := item{kind: k, at: t, part: p.freePart(out, t)}
		p.shapeComposed(&it, len(first) > 0)
		if t+it.for_ > end {
			if len(first) == 0 {
				break
			}
			first = first[1:] // a later kind may take less time
			continue
		}
		if len(first) > 0 {
			first = first[1:]
		}
		items = append(items, it)
		if it.out > 0 {
			out[it.part] = t + it.out
		}
		t += it.for_ + settling
		rest := time.Duration(0) // the time that the overture still needs
		for _, k := range first {
			other := item{kind: k}
			p.longest(&other)
			rest += other.for_ + 3*settling // until the servers are in order for the next
		}
		work := p.between(settling, 5*settling/2)
		if over := slices.Min(out[1:]) + work; over > t && over+rest < end && !p.control && p.rand.IntN(4) > 0 {
			t = over
		} else {
			t += p.between(0, settling)
		}
	}
	return items
}

// freePart draws a part of the node, most often one that is not out at t.
func (p *planner) freePart(out []time.Duration, t time.Duration) int {
	part := 1 + p.rand.IntN(len(out)-1)
	for range len(out) - 1 {
		if out[part] <= t || p.rand.IntN(8) == 0 {
			return part
		}
		part = 1 + part%(len(out)-1)
	}
	return part
}

// longest sets it.for_ to the longest time that a fault of masters of its kind takes.
func (p *planner) longest(it *item) {
	switch it.kind {
	case minority:
		it.for_ = p.isolation() + 2*settling
	case killFollower, hangFollower:
		it.for_ = failoverTime
	case restartAll, lostReply:
		it.for_ = settling
	case reset:
		it.for_ = settling / 5
	case killNode, wipeNode, hangNode:
		it.for_ = 2 * failoverTime
		if p.topology.ensemble() && it.kind == hangNode {
			it.for_ = failoverTime/2 + 3*p.ttl/2 // longer than the TTL
		}
	case lag:
		it.for_ = 2*settling + failoverTime
	case failback, settings:
		it.for_ = settling
	case flush, scripts, setOne:
		it.for_ = settling / 5
	default:
		it.for_ = 2 * settling
	}
}

// isolation returns the least time for which a minority is cut off. It is long enough for the other side
// to promote a master and, except in the control run, for that master to vote.
func (p *planner) isolation() time.Duration {
	switch {
	case p.topology.ensemble():
		return failoverTime + p.ttl
	case p.control:
		return 2 * failoverTime
	}
	return failoverTime + quarantine(p.ttl)
}

// shapeComposed draws the duration of a fault of masters and its other details. A fault of the overture
// (first) that is to have a replica promoted is long enough for that.
func (p *planner) shapeComposed(it *item, first bool) {
	p.longest(it)
	switch it.kind {
	case minority:
		it.for_ -= p.between(0, 2*settling)
		it.side, it.whom = side(p.rand.IntN(2)), p.rand.IntN(sentinelCount)
		it.hard = p.topology.ensemble() && p.rand.IntN(2) == 0
	case killNode, wipeNode, hangNode:
		if first && !p.control || p.rand.IntN(3) > 0 {
			it.for_ -= p.between(0, failoverTime/2)
		} else {
			it.for_ = p.between(100*time.Millisecond, 400*time.Millisecond)
		}
		it.whom = p.rand.IntN(8)
	case failback, settings:
		it.for_ -= p.between(0, settling/2)
		it.whom = p.rand.IntN(variants)
	case flush, scripts, reset:
	case lostReply:
		it.for_ = p.between(settling/20, settling)
	case setOne:
		it.delay = p.otherMaxTTL()
	default:
		it.for_ -= p.between(0, settling)
		it.whom = p.rand.IntN(8)
	}
	switch it.kind {
	case failover:
		if p.topology == Cluster {
			it.delay, it.hard = p.between(200*time.Millisecond, 800*time.Millisecond), p.rand.IntN(2) == 0
		}
	case moveSlot:
		it.delay = p.between(time.Millisecond, 100*time.Millisecond)
	case takeover, fixSlots, lag:
		it.delay, it.hard = p.between(200*time.Millisecond, 800*time.Millisecond), p.rand.IntN(2) == 0
		if it.kind == lag && !it.hard {
			it.for_ -= failoverTime
		}
	}
	if traits[it.kind].out {
		it.out = it.for_ + settled
		if traits[it.kind].forgets || it.kind == killNode || it.kind == hangNode {
			it.out = max(it.out, min(it.for_, failoverTime)+quarantine(max(p.ttl, it.maxTTL())))
		}
		if p.topology.ensemble() {
			it.out = it.for_ + electionTime
		}
	}
}

// ofSentinels draws the faults of Sentinels, which may come at the same time as those of masters.
func (p *planner) ofSentinels(masters []item) []item {
	all := p.overture(func(t trait) bool { return t.sentinel })
	if len(all) == 0 {
		return nil
	}
	var items []item
	for t := calm; ; t += p.between(2*settling, 8*settling) {
		k := all[len(items)%len(all)]
		it := item{kind: k, at: t, for_: p.between(settling, 4*settling), part: 1, whom: p.rand.IntN(sentinelCount)}
		for _, m := range masters {
			// During a minority both Sentinels on the other side have to be up.
			if m.kind == minority && it.at < m.at+m.for_+settling && m.at < it.at+it.for_+2*settling {
				it.at = m.at + m.for_ + settling
			}
		}
		if it.at+it.for_ > p.length-p.tail() {
			return items
		}
		items, t = append(items, it), it.at+it.for_
	}
}

// ofClients draws when further clients come. They come one after the other, at the same time as other
// faults.
func (p *planner) ofClients() []item {
	all := p.overture(func(t trait) bool { return t.client })
	if len(all) == 0 {
		return nil
	}
	var items []item
	for t := 2 * settling; ; t += p.between(settling, 6*settling) {
		it := item{kind: all[len(items)%len(all)], at: t}
		p.shape(&it)
		if it.at+it.for_ > p.length-p.tail() {
			return items
		}
		items, t = append(items, it), it.at+it.for_
	}
}

// ofWorkers draws the faults of workers.
func (p *planner) ofWorkers() []item {
	all := p.overture(func(t trait) bool { return t.worker })
	if len(all) == 0 {
		return nil
	}
	var items []item
	for t := calm; t < p.length-p.tail(); t += p.between(4*shortestGap, 4*longestGap) {
		k := p.drawOf(all)
		if len(items) < len(all) {
			k = all[len(items)]
		}
		if it, ok := p.make(k, t); ok && it.at+it.for_ <= p.length-p.tail() {
			items = append(items, it)
			p.take(it)
		}
	}
	return items
}
