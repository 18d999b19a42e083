package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Weather is what kind of faults a world has.
type Weather uint8

// The kinds of weather.
const (
	Calm      Weather = iota // delays only
	Lossy                    // connections break, ways are cut and slow
	Servers                  // servers crash, hang, forget, are replaced
	Processes                // client processes stop, sleep and die
	Clocks                   // clocks run at the limits of what is promised
	Tight                    // messages take as long as a TTL, and all want one lock
	Torn                     // and connections break, and all clocks are as far apart as can be
	Storm                    // all of these
	Outlaw                   // and the servers' clocks are stepped beyond it
	Alone                    // a storm over one node, whose lock all want
	Roles                    // servers change their roles, replicas, settings and files
	Durable                  // and no node ever forgets, on an operator's word
	Outside                  // others come: with other libraries, other settings, and delete keys
	Stalls                   // goroutines of the library stand still at any step
)

var weatherNames = []string{"calm", "lossy", "servers", "processes", "clocks", "tight", "torn", "storm", "outlaw", "alone", "roles", "durable", "outside", "stalls"}

func (w Weather) String() string { return weatherNames[w] }

// ParseWeather returns the weather of a name. ok is false when there is none.
func ParseWeather(name string) (w Weather, ok bool) {
	i := slices.Index(weatherNames, name)
	return Weather(max(i, 0)), i >= 0
}

// Plan is all that is decided about a world before it begins.
type Plan struct {
	Weather     Weather
	Names       []string
	Machines    int
	Workers     int // on each machine
	TTL, MaxTTL time.Duration
	NodeTimeout time.Duration
	// Think is the mean time between what a worker does.
	Think time.Duration
	// Brief is how many of a hundred uses of a lock last for a moment.
	Brief int
	// Length is how long faults come: in bursts, between which it is quiet.
	Length time.Duration

	// Stranger is where clients come from whose settings are not those of the others, nil for
	// nowhere; Neighbour where those of another deployment do.
	Stranger, Neighbour *Machine

	world *World
	rng   *rand.Rand
	// gap is the mean time between the faults of a burst, quiet that between two
	// bursts.
	gap, quiet time.Duration
	// burst is closed during a burst. It is guarded by world.mu.
	burst chan struct{}
	// shortest and longest bound what a worker asks for.
	shortest, longest time.Duration
	faults, bursts    int
}

// NewPlan draws a plan and builds the world after it: its nodes and machines.
// weather, if it names one, is not drawn.
func NewPlan(w *World, weather string) *Plan {
	r := w.Rand("plan")
	p := &Plan{world: w, rng: r, Brief: 30, burst: make(chan struct{})}
	p.Weather = []Weather{Calm, Lossy, Servers, Servers, Processes, Clocks, Tight, Torn, Storm, Outlaw, Alone, Roles, Roles, Durable, Outside, Outside, Stalls}[r.IntN(17)]
	if fixed, ok := w.Mutation.weather(); ok {
		p.Weather = fixed
	}
	if fixed, ok := ParseWeather(weather); ok {
		p.Weather = fixed
	}
	w.Judge.Outlaw = p.Weather == Outlaw
	nodes := []int{1, 2, 3, 3, 3, 3, 3, 3, 4, 5, 5}[r.IntN(11)]
	p.Machines = 2 + r.IntN(2)
	p.Workers = 1 + r.IntN(2)
	for i := range 1 + r.IntN(3) {
		p.Names = append(p.Names, fmt.Sprintf("lock-%c", 'a'+i))
	}
	p.MaxTTL = between(r, 2*time.Second, 8*time.Second).Truncate(time.Millisecond)
	if p.Weather == Outlaw {
		p.MaxTTL += 4 * time.Second
	}
	p.TTL = between(r, 300*time.Millisecond, p.MaxTTL).Truncate(time.Millisecond)
	p.shortest, p.longest = 200*time.Millisecond, p.MaxTTL
	p.NodeTimeout = []time.Duration{20, 50, 50, 200}[r.IntN(4)] * time.Millisecond
	p.Think = between(r, 300*time.Millisecond, 3*time.Second)
	p.Length = between(r, 130*time.Second, 210*time.Second)
	p.gap, p.quiet = between(r, 100*time.Millisecond, 2*time.Second), between(r, 20*time.Second, 60*time.Second)
	tight := p.Weather == Tight || p.Weather == Torn
	if tight {
		nodes = 3
		p.Machines, p.Names = 3, p.Names[:1]
		p.TTL = between(r, 60*time.Millisecond, 300*time.Millisecond).Truncate(time.Millisecond)
		p.MaxTTL = max(p.MaxTTL/4, 2*p.TTL)
		p.shortest, p.longest = p.TTL/2, 2*p.TTL
		p.NodeTimeout = (p.TTL / time.Duration(1+r.IntN(4))).Truncate(time.Millisecond)
		p.Think = between(r, p.TTL/4, 4*p.TTL)
		p.gap, p.quiet = between(r, p.TTL/2, 4*p.TTL), 2*p.quiet
	}

	w.Judge.NodeTimeout, w.Judge.Quarantine = p.NodeTimeout, p.Quarantine()
	if p.Weather == Alone {
		nodes = 1
		p.Machines, p.Names = 3, p.Names[:1]
		p.TTL = max(p.TTL, p.MaxTTL/2)
		p.Think, p.Brief = between(r, time.Millisecond, 200*time.Millisecond), 80
		p.gap, p.quiet = between(r, 100*time.Millisecond, time.Second), between(r, 5*time.Second, 20*time.Second)
	}

	// Rates that differ by less than 1 % between any two leave the 2 ms of the
	// drift to steps.
	most := 0.001
	if p.Weather >= Clocks {
		most = 0.0045
	}
	worst := r.IntN(2) == 0 || p.Weather == Torn // as far apart as can be, the wrong way round
	rate := func(worse float64) float64 {
		if worst {
			return 1 + most*worse
		}
		return 1 + most*(2*r.Float64()-1)
	}
	uniform := r.IntN(4) > 0
	durability, replicated := Durability(r.IntN(int(durabilities))), r.IntN(2) == 0
	if w.Mutation == PromotionHidden || w.Mutation == ReplicationIgnored {
		uniform, replicated = true, true
	}
	for range nodes {
		// Nodes forget, also what nobody used for long: then tokens rest on
		// clocks that are off by little.
		off := between(r, -500*time.Millisecond, 500*time.Millisecond)
		if worst {
			off = time.Duration(1-2*r.IntN(2)) * 500 * time.Millisecond
		}
		if p.Weather == Durable {
			durability, replicated = Always, false
		} else if !uniform {
			durability, replicated = Durability(r.IntN(int(durabilities))), r.IntN(2) == 0
		}
		w.NewNode(durability, replicated, rate(1), off, time.Duration(r.IntN(2))*time.Hour+time.Minute)
	}
	like := p.network()
	if tight {
		like.Delay = between(r, 0, p.NodeTimeout/4)
		like.Spikes, like.Spike = 0.5*r.Float64(), between(r, p.NodeTimeout/2, 3*p.TTL)
	}
	if p.Weather == Torn {
		like.Spikes, like.Spike = 0.1*r.Float64(), between(r, p.TTL, 3*p.TTL)
		like.Snags, like.Snag = 0.5*r.Float64(), between(r, p.TTL, 6*p.TTL)
	}
	if p.Weather == Alone {
		like.Spikes, like.Spike = 0.1*r.Float64(), between(r, 0, p.TTL)
		like.Snags, like.Snag = 0.2*r.Float64(), between(r, 0, p.TTL)
	}
	const ahead, behind = 70 * 365 * 24 * time.Hour, -20 * 365 * 24 * time.Hour
	turn := r.IntN(2)
	for i := range p.Machines {
		off := between(r, -time.Minute, time.Minute)
		switch odd := r.IntN(6); {
		case p.Weather == Torn:
			off = []time.Duration{ahead, behind}[(i+turn)%2]
		case odd == 0 || worst && odd == 1:
			off = ahead
		case odd == 5 || worst && odd == 4:
			off = behind
		}
		networks := make([]Network, nodes)
		for i := range networks {
			networks[i] = like
			networks[i].Delay = between(r, like.Delay/2, 2*like.Delay)
		}
		m := w.NewMachine(rate(-1), off, networks)
		if p.Weather == Stalls || p.Weather == Storm {
			m.Stalls(0.02*r.Float64(), between(r, p.NodeTimeout/10, p.TTL))
		}
	}
	if p.Weather == Outside {
		ways := slices.Repeat([]Network{like}, nodes)
		p.Stranger, p.Neighbour = w.NewVisitor("stranger", true, ways), w.NewVisitor("neighbour", false, ways)
	}
	return p
}

// network draws how messages fare.
func (p *Plan) network() Network {
	r := p.rng
	n := Network{
		Delay:  between(r, 20*time.Microsecond, p.NodeTimeout/20),
		Jitter: between(r, 10*time.Microsecond, p.NodeTimeout/10),
	}
	if r.IntN(2) == 0 {
		n.Spikes, n.Spike = 0.05*r.Float64(), between(r, 0, 4*p.NodeTimeout)
	}
	if (p.Weather == Lossy || p.Weather >= Torn) && r.IntN(2) == 0 {
		n.Cuts = 0.02 * r.Float64()
	}
	return n
}

func (p *Plan) String() string {
	return fmt.Sprintf("%v, %d nodes, %d machines × %d, names %q, TTL %v of %v, node timeout %v, think %v, bursts of faults each %v every %v for %v",
		p.Weather, len(p.world.nodes), p.Machines, p.Workers, p.Names, p.TTL, p.MaxTTL, p.NodeTimeout, p.Think, p.gap, p.quiet, p.Length)
}

// Faults returns how many faults there were, apart from those of single
// messages.
func (p *Plan) Faults() int { return p.faults }

// Machine returns machine i as it is now.
func (p *Plan) Machine(i int) *Machine {
	return p.world.Machine(i)
}

// AnyTTL draws a TTL that a worker may ask for.
func (p *Plan) AnyTTL(r *rand.Rand) time.Duration { return between(r, p.shortest, p.longest) }

// Quarantine is how long a node that may have forgotten is kept out.
func (p *Plan) Quarantine() time.Duration { return p.MaxTTL + 4*time.Second }

// Run brings the faults, in bursts, and ends them all when their time is over.
func (p *Plan) Run() {
	kinds := p.kinds()
	for p.sleep(around(p.rng, p.quiet)) {
		p.stir()
		for n := 1 + p.rng.IntN(8); n > 0 && p.sleep(around(p.rng, p.gap)+time.Millisecond); n-- {
			if len(kinds) > 0 {
				kinds[p.rng.IntN(len(kinds))]()
				p.faults++
			}
		}
		// Now what was granted before and in the burst meets what is granted after
		// it.
		p.sleep(between(p.rng, p.TTL, p.Quarantine()))
		p.settle()
	}
	p.world.calm()
}

// sleep waits for d, and reports whether there is time for more faults.
func (p *Plan) sleep(d time.Duration) bool {
	time.Sleep(min(d, p.Length-p.world.Now()))
	return p.world.Now() < p.Length && len(p.world.Judge.Verdicts()) == 0
}

// stir begins a burst, in which all work faster.
func (p *Plan) stir() {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.bursts++
	close(p.burst)
}

// settle ends a burst.
func (p *Plan) settle() {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.burst = make(chan struct{})
}

// Burst is closed while faults come, and for a while after.
func (p *Plan) Burst() <-chan struct{} {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	return p.burst
}

// kinds lists the faults of this weather; one that is there twice comes twice as
// often.
func (p *Plan) kinds() []func() {
	network := []func(){p.sever, p.partition, p.partition, p.isolate, p.slow, p.cross}
	servers := []func(){p.crash, p.crash, p.crash, p.crashAll, p.roll, p.hang, p.hang, p.promote, p.promoteAll, p.promoteAll, p.promoteAndCrash, p.promoteAndCrash, p.flush, p.flushAll, p.flushScripts}
	roles := []func(){p.demote, p.demote, p.demoteAll, p.failOver, p.failOver, p.failOver, p.failOverAll, p.attach, p.attach, p.persist, p.persist, p.backUp, p.backUp, p.restore, p.rename}
	outside := []func(){p.tamper, p.tamper, p.tamper, p.delete, p.foreign, p.foreign, p.foreign, p.fakeCounter}
	processes := []func(){p.pause, p.pause, p.suspend, p.kill}
	clocks := []func(){p.twitch, p.stepMachine}
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
	case Storm:
		return slices.Concat(network, servers, roles, processes, clocks)
	case Roles:
		return slices.Concat(roles, roles, []func(){p.crash, p.flushScripts, p.hang, p.promote, p.sever})
	case Durable:
		return slices.Concat(network, processes, []func(){p.stop, p.stop, p.stop, p.stopAll, p.roll, p.hang, p.flushScripts, p.rename})
	case Outside:
		return slices.Concat(outside, outside, []func(){p.crash, p.flushScripts, p.sever, p.hang, p.kill})
	case Stalls:
		return slices.Concat(network, processes)
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

func (p *Plan) backUp() { p.node().BackUp() }

func (p *Plan) restore() { p.node().Restore(p.span()) }

func (p *Plan) rename() { p.node().Rename() }

func (p *Plan) name() string { return p.Names[p.rng.IntN(len(p.Names))] }

func (p *Plan) tamper() { p.node().Tamper(p.rng, p.name()) }

func (p *Plan) delete() { p.node().Delete(p.name()) }

func (p *Plan) foreign() {
	ttl := between(p.rng, 10*time.Millisecond, p.MaxTTL).Truncate(time.Millisecond)
	p.world.Foreign(p.name(), ttl, between(p.rng, 0, ttl))
}

func (p *Plan) fakeCounter() {
	p.world.FakeCounter(p.name(), between(p.rng, 10*time.Millisecond, p.MaxTTL))
}

func (p *Plan) flushAll() {
	for _, n := range p.world.nodes {
		n.Flush()
	}
}

func (p *Plan) flush() { p.node().Flush() }

func (p *Plan) flushScripts() { p.node().FlushScripts() }

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

// swift is how slow a network may be in which nothing is wrong.
const swift = time.Millisecond

// calm ends all faults and starts what is down.
func (w *World) calm() {
	w.History.Add("world", "faults are over")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calmed = true
	w.quiet.Store(true)
	for _, m := range w.machines {
		m.endPause()
		for _, p := range m.paths {
			p.thereUntil, p.backUntil, p.slowUntil = 0, 0, 0
			p.network.Cuts, p.network.Spikes, p.network.Snags = 0, 0, 0
			p.network.Delay, p.network.Jitter = min(p.network.Delay, swift), min(p.network.Jitter, swift)
		}
		for _, c := range m.conns {
			if s := c.stream; s != nil {
				s.there.hasten()
				s.back.hasten()
			}
		}
	}
	for _, n := range w.nodes {
		n.fuse = 0
		n.goOn()
		n.up()
		if n.server.Replica {
			n.promoted(n.server)
		}
	}
}
