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
	Silent                   // nodes cannot be reached when they have just told a waiter that it is its turn
	Replaced                 // hosts stand still, their masters are replaced, and answer when they go on
	Sets                     // most calls are for several names at once, in a storm
	Readers                  // most calls are readers', in a storm
	Permits                  // most calls are for permits, in a storm
	Changes                  // an operator changes the deployment, and no node forgets that
)

var weatherNames = []string{"calm", "lossy", "servers", "processes", "clocks", "tight", "torn", "storm", "outlaw", "alone", "roles", "durable", "outside", "stalls", "silent", "replaced", "sets", "readers", "permits", "changes"}

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
	// Abandon is how many of a hundred locks that nobody extends are left to run out, and Patient how
	// many of a hundred calls wait for as long as a quarantine.
	Abandon, Patient int
	// Reads is how many of a hundred calls are a reader's, and Permits how many are for one of several
	// permits: of the least slots, and of up to as many as there are.
	Reads, Permits int
	LeastSlots     int
	Slots          int
	// Length is how long faults come: in bursts, between which it is quiet.
	Length time.Duration

	// Stranger is where clients come from whose settings are not those of the others, nil for
	// nowhere; Neighbour where those of another deployment do. Operator is where somebody changes the
	// deployment.
	Stranger, Neighbour, Operator *Machine

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
	// forgetful is how many nodes may lose all, the first ones, while no settings are changed: from kept on,
	// which is guarded by world.mu.
	forgetful int
	kept      time.Duration
}

// NewPlan draws a plan and builds the world after it: its nodes and machines.
// weather, if it names one, is not drawn.
func NewPlan(w *World, weather string) *Plan {
	r := w.Rand("plan")
	p := &Plan{world: w, rng: r, Brief: 30, Abandon: 15, Patient: 10, burst: make(chan struct{})}
	p.Weather = []Weather{Calm, Lossy, Servers, Servers, Processes, Clocks, Tight, Torn, Storm, Outlaw, Alone, Roles, Roles, Durable, Outside, Outside, Stalls}[r.IntN(17)]
	if lot := w.Rand("weather").IntN(20); lot < 5 { // which leaves the worlds of the others as they are
		p.Weather = []Weather{Silent, Replaced, Sets, Readers, Permits}[lot]
	}
	if fixed, ok := w.Mutation.weather(); ok {
		p.Weather = fixed
	}
	if fixed, ok := ParseWeather(weather); ok {
		p.Weather = fixed
	}
	w.Judge.Outlaw = p.Weather == Outlaw
	if p.Weather == Calm {
		p.Abandon, p.Patient = 50, 40
	}
	nodes := []int{1, 2, 3, 3, 3, 3, 3, 3, 4, 5, 5}[r.IntN(11)]
	p.Machines = 2 + r.IntN(2)
	p.Workers = 1 + r.IntN(2)
	for i := range 1 + r.IntN(3) {
		p.Names = append(p.Names, fmt.Sprintf("lock-%c", 'a'+i))
	}
	if p.Weather == Sets {
		p.Names, p.Brief = []string{"lock-a", "lock-b", "lock-c"}, 60
	}
	if p.Weather == Readers {
		p.Names, p.Brief = p.Names[:min(2, len(p.Names))], 60
		p.Workers++
	}
	if p.Weather == Readers || w.Mutation.reads() {
		p.Reads = 65
	}
	if p.Weather == Permits {
		p.Names, p.Brief = p.Names[:min(2, len(p.Names))], 60
		p.Workers++
	}
	if p.Weather == Permits || w.Mutation.permits() {
		p.TakePermits(65)
	}
	p.MaxTTL = between(r, 2*time.Second, 8*time.Second).Truncate(time.Millisecond)
	if p.Weather == Outlaw || p.Weather == Replaced {
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
	if p.Weather == Changes {
		p.prepareChanges(r)
	}
	apart := time.Duration(0)
	switch p.Weather {
	case Silent:
		nodes = 3
		p.Machines, p.Names = 3, p.Names[:1]
		p.TTL = min(max(p.TTL, 20*p.NodeTimeout), p.MaxTTL)
		p.Think = between(r, p.NodeTimeout, p.TTL/4)
	case Replaced:
		nodes = 1
		p.Machines, p.Workers, p.Names = 3, 2, p.Names[:1]
		p.TTL, p.shortest = p.MaxTTL, p.MaxTTL*7/8
		p.Think, p.Brief, p.Patient = between(r, 20*time.Millisecond, 200*time.Millisecond), 80, 80
		p.gap, p.quiet = between(r, p.Quarantine()/2, p.Quarantine()), between(r, time.Second, 5*time.Second)
		apart = p.MaxTTL/2 + time.Second // which is as far as tokens bear
		if r.IntN(2) == 0 {
			apart = between(r, 0, apart)
		}
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
	if p.Weather == Changes {
		uniform, durability, replicated = true, Always, r.IntN(5) > 0
		p.forgetful = (nodes - 1) / 2
	}
	if p.Weather == Replaced || w.Mutation == PromotionHidden || w.Mutation == ReplicationIgnored || w.Mutation == AdmissionUnnamed {
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
		w.NewNode(durability, replicated, rate(1), off, time.Duration(r.IntN(2))*time.Hour+time.Minute).apart = apart
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
	if p.Weather == Silent {
		like.Silences, like.Silence = 0.3*r.Float64(), between(r, p.NodeTimeout, p.TTL)
	}
	const ahead, behind = 70 * 365 * 24 * time.Hour, -20 * 365 * 24 * time.Hour
	turn := r.IntN(2)
	for i := range p.Machines {
		off := between(r, -time.Minute, time.Minute)
		switch odd := r.IntN(6); {
		case p.Weather == Torn || p.Weather == Replaced:
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
		if p.Weather == Stalls || p.Weather == Storm || p.Weather == Readers || p.Weather == Permits {
			m.Stalls(0.02*r.Float64(), between(r, p.NodeTimeout/10, p.TTL))
		}
	}
	if p.Weather == Changes {
		p.Operator = w.NewVisitor("operator", false, slices.Repeat([]Network{like}, nodes))
	}
	if p.Weather == Outside {
		ways := slices.Repeat([]Network{like}, nodes)
		p.Stranger, p.Neighbour = w.NewVisitor("stranger", true, ways), w.NewVisitor("neighbour", false, ways)
	}
	return p
}

// TakePermits has so many of a hundred calls be for permits: of 2 to 4, or in half of the worlds, each of
// another number than others are.
func (p *Plan) TakePermits(percent int) {
	r := p.world.Rand("permits")
	p.Permits, p.LeastSlots = percent, 2+r.IntN(3)
	p.Slots = p.LeastSlots + max(0, r.IntN(4)-1)
}

// Keys are those of the locks, and of all slots.
func (p *Plan) Keys() []string {
	keys := slices.Clone(p.Names)
	for _, name := range p.Names {
		keys = append(keys, slotKeys(name, p.Slots)...)
	}
	return keys
}

// network draws how messages fare.
func (p *Plan) network() Network {
	r := p.rng
	n := Network{
		Delay:  between(r, 20*time.Microsecond, p.NodeTimeout/20),
		Jitter: between(r, 10*time.Microsecond, p.NodeTimeout/10),
	}
	if r.IntN(2) == 0 && p.Weather != Calm {
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

// Operated reports whether operators vouch for nodes, and reset them: not where clocks are so far
// apart that tokens rest on the whole quarantine, nor where the quarantine is one of a change.
func (p *Plan) Operated() bool {
	return p.Weather >= Storm && p.Weather != Outlaw && p.Weather != Replaced && p.Weather != Changes
}

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
			p.network.Cuts, p.network.Spikes, p.network.Snags, p.network.Silences = 0, 0, 0, 0
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
		n.fuse, n.halt = 0, nil
		n.goOn()
		n.up()
		if n.server.Replica && n.member == nil {
			n.promoted(n.server)
		}
	}
}
