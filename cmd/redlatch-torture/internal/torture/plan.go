//go:build linux

package torture

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
	"github.com/redlatch/redlatch/internal/redistest"
)

// item is one fault of a plan.
type item struct {
	kind     kind
	at, for_ time.Duration
	nodes    []int // from 0
	workers  []int // from 0
	side     side
	way      redistest.Direction
	delay    time.Duration
	jitter   time.Duration
	step     time.Duration
	aim      aim
	// part is the part of a node that several servers make up, from 1, or 0 for other faults.
	part int
	// whom chooses between the Sentinels, slots, masters or variants of the fault. hard chooses its harder
	// variant, which detail describes.
	whom int
	hard bool
	// out is how long the nodes count as out, counted from at. It is 0 if they do not.
	out time.Duration
}

// setting is what a plan depends on. The same setting always gives the same plan.
type setting struct {
	seed           uint64
	topology       Topology
	length         time.Duration
	kinds          []kind
	nodes, workers int
	ttl            time.Duration
	sets           bool   // a worker wants all names at once: see leavesQuiet
	control        bool   // the plan is for the control run, and often has what shows the bug
	durable, wired []bool // by node: see the functions of these names
}

const (
	calm = 500 * time.Millisecond  // before the first fault
	tail = 1500 * time.Millisecond // after the last fault, with several nodes
	// settled is how long a node still counts as out after a fault, while clients connect again.
	settled                 = 500 * time.Millisecond
	shortestGap, longestGap = 80 * time.Millisecond, 420 * time.Millisecond
	// blackoutFits is the shortest run that has a blackout, and the least time from one blackout to the
	// next. During a blackout there can be few other faults.
	blackoutFits = 40 * time.Second
	// unwaitedRun is the number of faults by which a lone node forgets that come during a quarantine,
	// after each such fault that waited until the node voted. If all waited, they would not fit into a
	// minute.
	unwaitedRun = 2
	// setAllFits is the shortest run in which all nodes get another MaxTTL and then the former one again.
	// Each change is followed by a quarantine. It is also the least time from one setAll to the next.
	setAllFits = 4 * time.Minute
)

// tail is how long the run goes on without faults at its end. With one node it is long enough
// to see that locks can be acquired again.
func (s setting) tail() time.Duration {
	if s.topology.ensemble() {
		if s.control || s.length < s.topology.shortestRun() {
			return tail // whether locks can be acquired again does not matter then
		}
		return 2*electionTime + s.topology.kept(s.ttl) + lastLook + settled
	}
	if s.topology.alone() && !s.control {
		return quarantine(s.ttl) + max(history.Recovery, s.ttl+lastLook) + settled
	}
	return tail
}

// planner draws a plan. The fields named busy say until when a node or a worker has a fault.
type planner struct {
	setting
	rand       *rand.Rand
	nodeBusy   []time.Duration
	nodeOut    []time.Duration
	workerBusy []time.Duration
	splitBusy  time.Duration
	clientBusy time.Duration
	dark       time.Duration // until when there is no further blackout
	unset      time.Duration // until when there is no further setAll
	unwaited   int           // how many faults by which a lone node forgets may still come during quarantines
}

func newPlanner(s setting) *planner {
	return &planner{
		setting: s, rand: rand.New(rand.NewPCG(s.seed, 0x70_72_74)),
		nodeBusy: make([]time.Duration, s.nodes), nodeOut: make([]time.Duration, s.nodes),
		workerBusy: make([]time.Duration, s.workers),
	}
}

// plan draws the faults of a run, sorted by time. Each kind comes once at first, in a random
// order; after that, kinds are drawn by their weight. Except in a blackout and in a setAll, no more than
// a minority of the nodes is out at any time.
func (s setting) plan() []item {
	if s.topology.composed() {
		return s.planComposed()
	}
	p := newPlanner(s)
	overture := slices.Clone(s.kinds)
	p.rand.Shuffle(len(overture), func(i, j int) { overture[i], overture[j] = overture[j], overture[i] })
	// Kinds after which nodes are out for long come last: the others could not come during that time.
	slices.SortStableFunc(overture, func(a, b kind) int { return p.trouble(a) - p.trouble(b) })
	if s.control && s.topology.alone() {
		overture = s.topology.telling() // there is no time for more
	}
	if s.length < blackoutFits {
		overture = slices.DeleteFunc(overture, func(k kind) bool { return k == blackout })
	}
	workers := slices.DeleteFunc(slices.Clone(p.kinds), func(k kind) bool { return !traits[k].worker })
	var items []item
	var waiting time.Duration // until when no fault of a worker is added while the overture has to wait
	add := func(k kind, t time.Duration) bool {
		it, ok := p.make(k, t)
		ok = ok && it.at+it.for_ <= s.length-s.tail() && p.leavesQuiet(it)
		if ok {
			items = append(items, it)
			p.take(it)
		}
		return ok
	}
	for t := calm; t < s.length-s.tail(); {
		var k kind
		if len(overture) > 0 {
			k = overture[0]
		} else {
			k = p.drawOf(p.kinds)
		}
		ok := add(k, t)
		switch {
		case ok && len(overture) > 0:
			overture = overture[1:]
		case !ok && len(overture) > 0:
			t += 50 * time.Millisecond // the kind is tried again until there is room for it
			if t > waiting && len(workers) > 0 {
				add(p.drawOf(workers), t)
				waiting = t + p.between(4*shortestGap, 4*longestGap)
			}
			// The rest of the overture need not wait for this kind and goes first. But on a lone node,
			// kinds of more trouble stay behind it.
			next := slices.IndexFunc(overture, func(other kind) bool { return p.topology.alone() && p.trouble(other) > p.trouble(k) })
			if next < 0 {
				next = len(overture)
			}
			overture = slices.Concat(overture[1:next], []kind{k}, overture[next:])
			continue
		}
		t += shortestGap + time.Duration(p.rand.Int64N(int64(longestGap-shortestGap)))
	}
	return items
}

// leavesQuiet reports whether, with the fault, the nodes still have no fault before each look for as long
// as a key may stay that could not be deleted. The workers have none either if each wants all names: any key
// might be that of the one that has a fault.
func (p *planner) leavesQuiet(it item) bool {
	if len(it.nodes) == 0 && !(p.sets && len(it.workers) > 0) || it.kind == setAll {
		return true // setAll may take longer than the time between two looks; the judge ignores those during it
	}
	look := it.at.Truncate(lookEvery)
	if it.at > look+lookTime {
		look += lookEvery
	}
	return look == 0 || it.at+it.for_+settled < look-p.ttl-lookMargin || it.at > look+lookTime
}

// trouble says how much a kind hinders the other ones. The overture has the kinds of less trouble first.
func (p *planner) trouble(k kind) int {
	switch k {
	case split:
		return 0 // it shows the control run's bug, and so comes first
	case wipeNode:
		if p.control && p.topology.alone() {
			return 0
		}
		return 2
	case demote, failback, flush, restore, setOne:
		return 2
	case killNode:
		if p.forgets(k) {
			return 2
		}
	case blackout, setAll:
		return 3
	}
	return 1
}

// forgets reports whether the node is out for a quarantine after a fault of the kind. A kill counts only on
// a lone node. One of several nodes that was killed and has its data is not counted as out.
func (s setting) forgets(k kind) bool {
	if s.topology.alone() && s.control {
		return false // the broken lock has no quarantine
	}
	return traits[k].forgets || k == killNode && s.topology.alone()
}

// weight returns how often a kind comes, relative to the weights of the other kinds.
func (s setting) weight(k kind) int {
	switch {
	case s.control && (k == split && !s.topology.alone() || slices.Contains(s.topology.telling(), k)):
		return 40
	case s.topology == Single && s.forgets(k):
		return 1 // no lock can be acquired for a long time after it
	}
	return traits[k].weight
}

// drawOf chooses one of the kinds by weight.
func (p *planner) drawOf(ks []kind) kind {
	total := 0
	for _, k := range ks {
		total += p.weight(k)
	}
	n := p.rand.IntN(total)
	for _, k := range ks {
		if n -= p.weight(k); n < 0 {
			return k
		}
	}
	panic("torture: weights do not add up")
}

// make draws a fault of the kind that begins at t. It returns false if no node or worker is free for
// it.
func (p *planner) make(k kind, t time.Duration) (item, bool) {
	it := item{kind: k, at: t}
	tr := traits[k]
	switch {
	case tr.worker:
		free := p.freeWorkers(t)
		if len(free) == 0 {
			return it, false
		}
		if k == starve {
			it.workers = free[:(len(free)+3)/4]
		} else {
			it.workers = free[:1]
		}
	case k == split:
		if t < p.splitBusy {
			return it, false
		}
		it.side = side(p.rand.IntN(2))
		it.nodes = p.rand.Perm(p.nodes)[:p.nodes/2+1]
	case k == blackout:
		free := p.freeNodes(t, nil)
		if p.outAt(t) > 0 || len(free) < p.nodes/2+1 || t < p.dark || t < p.clientBusy || p.length < blackoutFits {
			return it, false
		}
		it.nodes = free[:p.nodes/2+1]
	case k == setAll:
		free := p.freeNodes(t, nil)
		if len(free) < p.nodes || t < p.unset || t < p.clientBusy {
			return it, false
		}
		it.nodes = free
	case tr.client && !p.topology.composed():
		// The nodes must refuse the client for its settings. A majority that has forgotten the
		// deployment could not.
		if t < p.clientBusy || p.outAt(t) > (p.nodes-1)/2 {
			return it, false
		}
	default:
		var fit []bool
		switch k {
		case killNode:
			fit = p.durable
		case namespace:
			fit = p.wired
		}
		free := p.freeNodes(t, fit)
		if p.unwaited > 0 && p.forgets(k) {
			free = p.idleNodes(t)
		}
		if len(free) == 0 || tr.out && p.unwaited == 0 && p.outAt(t) >= max(1, (p.nodes-1)/2) {
			return it, false
		}
		it.nodes = free[:1]
	}
	p.shape(&it)
	return it, true
}

// shape draws the duration of a fault and its other details.
func (p *planner) shape(it *item) {
	between := p.between
	ways := []redistest.Direction{redistest.Requests, redistest.Replies, redistest.Both}
	ttl := p.ttl
	switch it.kind {
	case killNode, wipeNode:
		it.for_ = between(100*time.Millisecond, ttl/2)
	case blackout:
		it.for_ = between(50*time.Millisecond, 300*time.Millisecond)
	case hangNode, partition, refuse, halfOpen, namespace:
		it.for_ = between(200*time.Millisecond, ttl*3/4)
		it.way = ways[p.rand.IntN(3)]
	case split:
		it.for_ = between(ttl/4, ttl)
		it.way = ways[p.rand.IntN(3)]
	case latency:
		it.for_ = between(300*time.Millisecond, ttl)
		it.delay = between(time.Millisecond, 80*time.Millisecond)
		it.jitter = between(time.Millisecond, 20*time.Millisecond)
		it.way = ways[p.rand.IntN(3)]
	case reset:
		it.for_ = time.Millisecond
	case lostReply:
		it.for_ = between(200*time.Millisecond, ttl/2)
	case clockStep:
		it.for_ = between(200*time.Millisecond, 2*ttl)
		// Tokens are in order as long as the nodes' clocks differ by no more than MaxTTL/2 + 1 s. Each step is
		// at most half of that, since two nodes may be stepped in opposite directions.
		most := (ttl/2 + time.Second) / 2
		it.step = between(most/4, most)
	case nudge:
		it.for_ = between(200*time.Millisecond, 2*ttl)
		it.step = between(time.Millisecond, drift(ttl)/4)
	case demote:
		it.for_ = between(20*time.Millisecond, ttl/2)
	case failback:
		it.for_ = between(100*time.Millisecond, ttl/2)
		it.delay, it.hard = between(50*time.Millisecond, ttl/4), p.rand.IntN(2) == 0
	case attach, settings:
		it.for_ = between(200*time.Millisecond, ttl)
	case flush, scripts:
		it.for_ = time.Millisecond
	case restore:
		it.for_ = between(100*time.Millisecond, ttl/2)
		it.delay = between(50*time.Millisecond, ttl/2)
	case admit:
		it.for_ = between(20*time.Millisecond, ttl/4)
		it.hard = p.durable[it.nodes[0]] && p.rand.IntN(2) == 0
	case setOne:
		it.for_ = between(50*time.Millisecond, ttl/2)
		it.delay = p.otherMaxTTL()
	case setAll:
		it.delay = p.otherMaxTTL()
		it.for_ = quarantine(max(ttl, it.delay)) + between(ttl/2, 3*ttl/2)
	case stranger:
		it.for_ = between(ttl/4, ttl)
	case neighbour:
		it.for_ = between(ttl, 3*ttl) // it has to wait for locks that other workers want too
	case stop:
		it.for_ = between(ttl*11/10, ttl*5/2)
		it.aim = aims[p.rand.IntN(len(aims))]
	case crash:
		it.for_ = between(50*time.Millisecond, ttl/2)
		it.aim = aims[p.rand.IntN(len(aims))]
	case starve:
		it.for_ = between(ttl/2, 3*ttl/2)
	}
	it.whom = p.variant(it.kind)
	if it.step != 0 && p.rand.IntN(2) == 0 {
		it.step = -it.step
	}
	if traits[it.kind].out {
		it.out = it.for_ + settled
		if p.forgets(it.kind) {
			it.out += quarantine(max(p.ttl, it.maxTTL()))
		}
	}
}

// variants is a multiple of the number of variants of every kind, so that item.whom, drawn below
// it, chooses all variants of a kind equally often.
const variants = 120

// variant draws item.whom for the kinds that have variants.
func (p *planner) variant(k kind) int {
	switch {
	case k == stranger && p.topology.alone():
		// Not the last stranger, who has fewer nodes.
		return p.rand.IntN(variants) % (len(strangers) - 1)
	case k == failback, k == settings, traits[k].client:
		return p.rand.IntN(variants)
	}
	return 0
}

// otherMaxTTL draws a MaxTTL that is neither the deployment's nor that of any stranger.
func (p *planner) otherMaxTTL() time.Duration {
	if p.rand.IntN(2) == 0 {
		return p.ttl * 3 / 4
	}
	return p.ttl * 3 / 2
}

// maxTTL returns the MaxTTL to which the fault changes the deployment, or 0 if it does not change it.
func (it item) maxTTL() time.Duration {
	if it.kind == setOne || it.kind == setAll {
		return it.delay
	}
	return 0
}

// between draws a duration from least up to most.
func (p *planner) between(least, most time.Duration) time.Duration {
	return least + time.Duration(p.rand.Int64N(int64(most-least)))
}

// take notes that the nodes and workers of a fault, and the kind where that matters, are not free during it.
func (p *planner) take(it item) {
	busy := it.at + it.for_
	if it.kind == blackout {
		p.dark = it.at + blackoutFits
	}
	if it.kind == setAll {
		p.unset = it.at + setAllFits
	}
	if traits[it.kind].client || it.kind == setAll {
		p.clientBusy = busy + settled
	}
	if p.topology == Single && p.forgets(it.kind) {
		p.unwaited = (p.unwaited + unwaitedRun) % (unwaitedRun + 1)
	}
	for _, w := range it.workers {
		p.workerBusy[w] = busy + settled
	}
	if it.kind == split {
		p.splitBusy = busy + settled
		return
	}
	for _, n := range it.nodes {
		p.nodeBusy[n] = busy + settled
		if it.out > 0 {
			p.nodeOut[n] = it.at + it.out
		}
	}
}

// freeNodes returns the nodes that have no fault and are not out at t, in a random order. If fit is not
// nil, it returns only those with fit set.
func (p *planner) freeNodes(t time.Duration, fit []bool) []int {
	return slices.DeleteFunc(p.rand.Perm(p.nodes), func(n int) bool {
		return t < p.nodeBusy[n] || t < p.nodeOut[n] || fit != nil && !fit[n]
	})
}

// idleNodes returns the nodes that have no fault at t, in a random order. They may still be out.
func (p *planner) idleNodes(t time.Duration) []int {
	return slices.DeleteFunc(p.rand.Perm(p.nodes), func(n int) bool { return t < p.nodeBusy[n] })
}

func (p *planner) freeWorkers(t time.Duration) []int {
	return slices.DeleteFunc(p.rand.Perm(p.workers), func(w int) bool { return t < p.workerBusy[w] })
}

// outAt returns how many nodes are out at t.
func (p *planner) outAt(t time.Duration) int {
	n := 0
	for _, until := range p.nodeOut {
		if t < until {
			n++
		}
	}
	return n
}
