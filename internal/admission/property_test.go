package admission

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var (
	worlds    = flag.Uint64("admission.worlds", 600, "how many worlds the property is tried in")
	onlyWorld = flag.Int64("admission.world", -1, "replay this world alone, and say what happens in it")
)

// keys are what a deployment has on a server.
type keys struct {
	admission    string // agreement, run and replication id, as a vote compares them
	record, note string
}

// server is a master as a vote and an inspection see it, in whole seconds.
type server struct {
	data      map[string]keys // by deployment
	behind    map[string]keys // what a crash without fsync or a failback goes back to
	run, repl int
	started   int64
	received  int64
	promoted  bool
	// flushed by FLUSHALL, deleted by other means; forgotten are the scripts.
	flushed, deleted, forgotten bool
	voted                       map[string]bool
	fsync                       bool // what is answered is on disk
	grants                      []grant
}

// grant is a lock given away, of the longest TTL that its agreement allows.
type grant struct {
	deployment, agreement string
	noQuarantine          bool
	until                 int64
	// lost: the server does not know of it any more. orphan: nor does another know of the
	// agreement that it was given under, or a majority knows of none.
	lost, orphan bool
	// changed: it is of before an operator's change, which a server that loses its keys
	// within the quarantine of the change does not know of any more.
	changed bool
}

type world struct {
	rng     *rand.Rand
	now     int64
	ids     int
	servers []*server
	clients []Agreement
	// expected is what client c compares on server i: as it was when it examined it last.
	expected [][]string
	log      func(format string, args ...any)
	votes    int
	// durable: nodes keep the word of those who say that they are.
	durable bool
}

func newWorld(seed uint64, log func(string, ...any)) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), now: testNow, log: log, durable: seed%4 == 0}
	for range 3 {
		w.servers = append(w.servers, w.start(nil))
		w.servers[len(w.servers)-1].started -= int64(w.rng.IntN(300))
	}
	for range 5 {
		a := agreementOf(Agreement{})
		a.MaxTTL = []time.Duration{2 * time.Second, 30 * time.Second, 2 * time.Minute}[w.rng.IntN(3)]
		a.NoQuarantine = w.rng.IntN(5) == 0
		a.Durable = w.durable && !a.NoQuarantine && w.rng.IntN(2) == 0
		if w.rng.IntN(6) == 0 {
			a.Deployment = "another"
		}
		w.clients = append(w.clients, a)
		w.expected = append(w.expected, make([]string, 3))
	}
	return w
}

func (w *world) id() int { w.ids++; return w.ids }

func (w *world) start(data map[string]keys) *server {
	s := &server{data: maps.Clone(data), run: w.id(), repl: w.id(), started: w.now, voted: make(map[string]bool), fsync: w.durable || w.rng.IntN(2) == 0}
	if s.data == nil {
		s.data = make(map[string]keys)
	}
	s.behind = maps.Clone(s.data)
	return s
}

func text(id int) string { return fmt.Sprintf("%040d", id) }

func (w *world) evidence(a Agreement, i int) Evidence {
	s := w.servers[i]
	k := s.data[a.Deployment]
	e := Evidence{
		Server: Server{text(s.run), text(s.repl), s.received}, Promoted: s.promoted, Flushed: s.flushed,
		Uptime: time.Duration(max(0, w.now-s.started-1)) * time.Second, Now: w.now, Note: k.note, Voted: s.voted[a.Deployment], Sync: SyncOtherwise,
	}
	if s.fsync {
		e.Sync = SyncAlways
	}
	e.Record, _ = ParseRecord("", k.record)
	for j, other := range w.servers {
		r, _ := ParseRecord("", other.data[a.Deployment].record)
		switch {
		case j == i:
		case w.rng.IntN(4) == 0:
			// It cannot be asked.
		case r == nil:
			e.Others.None++
		case r.Agreement(a.Deployment).ID() == a.ID():
			e.Others.Same++
		default:
			e.Others.Differing = &DisagreementError{}
		}
	}
	return e
}

func (w *world) expect(a Agreement, i int) string {
	return a.ID() + " " + text(w.servers[i].run) + " " + text(w.servers[i].repl)
}

// examine decides for client c about server i, and carries it out.
func (w *world) examine(c, i int, vouched bool) bool {
	a, s := w.clients[c], w.servers[i]
	e := w.evidence(a, i)
	e.Vouched = vouched
	w.expected[c][i] = w.expect(a, i)
	d := Decide(a, e)
	k := s.data[a.Deployment]
	switch d.Outcome {
	case Begin:
		k.note = NewNote(e.Server, e.Now, a.Quarantine()).After(k.note).Text()
		k.admission = ""
	case Admit:
		r := &Record{Server: e.Server, Nodes: map[string]string{"a": "", "b": "", "c": ""},
			MaxTTLMS: a.MaxTTL.Milliseconds(), NoQuarantine: a.NoQuarantine, Durable: a.Durable, Void: d.Void}
		k = keys{admission: w.expected[c][i], record: r.Text()}
		s.voted[a.Deployment] = true
	}
	if d.Outcome >= Begin {
		s.data[a.Deployment] = k
	}
	w.log("%d: client %d (%s) examines %d: outcome %d, %v", w.now, c, a, i, d.Outcome, d.Err)
	return d.Outcome == Admit
}

// vote has client c ask server i, as the voting script answers.
func (w *world) vote(c, i int) error {
	a, s := w.clients[c], w.servers[i]
	if w.expected[c][i] == "" {
		w.expected[c][i] = w.expect(a, i)
	}
	admitted := func() bool {
		k := s.data[a.Deployment].admission
		return s.voted[a.Deployment] && k == w.expected[c][i] && k[len(k)-40:] == text(s.repl)
	}
	if !admitted() && (!w.examine(c, i, false) || !admitted()) {
		return nil
	}
	w.votes++
	s.grants = slices.DeleteFunc(s.grants, func(g grant) bool { return g.until <= w.now })
	for _, g := range s.grants {
		switch {
		case !g.lost || g.deployment != a.Deployment || g.noQuarantine && a.NoQuarantine:
		case g.orphan && g.agreement != a.ID():
		default:
			return fmt.Errorf("at %d client %d (%s) votes at %d, which has forgotten a lock that runs until %d: %+v", w.now, c, a, i, g.until, g)
		}
	}
	s.grants = append(s.grants, grant{deployment: a.Deployment, agreement: a.ID(), noQuarantine: a.NoQuarantine, until: w.now + int64(a.MaxTTL/time.Second)})
	return nil
}

// lose notes that server i goes back to what it was.
func (w *world) lose(i int) {
	for j := range w.servers[i].grants {
		g := &w.servers[i].grants[j]
		if !g.lost {
			g.lost, g.orphan = true, g.changed
		}
	}
	for k, s := range w.servers {
		for j := range s.grants {
			g := &s.grants[j]
			if !g.lost || g.orphan || g.until <= w.now {
				continue // an orphan for good, or of no concern
			}
			none, same := 0, 0
			for l, other := range w.servers {
				r, _ := ParseRecord("", other.data[g.deployment].record)
				switch {
				case r == nil || r.Run != text(other.run):
					none++ // or an old one
				case l != k && r.Agreement(g.deployment).ID() == g.agreement:
					same++
				}
			}
			g.orphan = none >= 2 || same == 0
		}
	}
}

func (w *world) restart(i int, data map[string]keys, loses bool) {
	old := w.servers[i]
	s := w.start(data)
	s.grants = old.grants // its settings may be others
	w.servers[i] = s
	if loses {
		w.lose(i)
	}
}

// failback has server i be a replica of its replica, and a master again: it goes back to what
// the replica had.
func (w *world) failback(i int) {
	s := w.servers[i]
	if w.durable {
		return
	}
	s.data, s.repl, s.promoted, s.received = maps.Clone(s.behind), w.id(), true, s.received+100
	w.lose(i)
}

// set is an operator's change of a deployment, on the servers that can be reached.
func (w *world) set(a Agreement) {
	longest := a.Quarantine()
	for _, s := range w.servers {
		if r, _ := ParseRecord("", s.data[a.Deployment].record); r != nil {
			longest = max(longest, r.Agreement(a.Deployment).Quarantine())
		}
	}
	for i, s := range w.servers {
		if w.rng.IntN(8) == 0 {
			continue
		}
		note := NewNote(Server{text(s.run), text(s.repl), s.received}, w.now, longest).After(s.data[a.Deployment].note)
		r := &Record{Server: note.Server, Nodes: map[string]string{"a": "", "b": "", "c": ""}, MaxTTLMS: a.MaxTTL.Milliseconds(), NoQuarantine: a.NoQuarantine, Durable: a.Durable}
		s.data[a.Deployment] = keys{record: r.Text(), note: note.Text()}
		for j := range s.grants {
			s.grants[j].changed = s.grants[j].changed || s.grants[j].deployment == a.Deployment
		}
		w.log("%d: %d is set to %s", w.now, i, a)
	}
}

func (w *world) event() error {
	c, i := w.rng.IntN(len(w.clients)), w.rng.IntN(3)
	s := w.servers[i]
	kind := w.rng.IntN(22)
	if kind > 10 {
		return w.vote(c, i)
	}
	w.log("%d: event %d at %d", w.now, kind, i)
	switch kind {
	case 0, 1: // restarts empty or with an old copy, or with all where that was on disk
		switch {
		case s.fsync:
			w.restart(i, s.data, false)
		case kind == 0:
			w.restart(i, nil, true)
		default:
			w.restart(i, s.behind, true)
		}
	case 2: // FLUSHDB by another name: a client of something else deleted what it found
		if !s.forgotten {
			s.data, s.deleted = make(map[string]keys), true
			w.lose(i)
		}
	case 3, 4:
		w.failback(i)
	case 5: // its first replica comes, or the last has been gone for long
		s.repl, s.promoted = w.id(), false
	case 6: // FLUSHALL
		s.data, s.flushed = make(map[string]keys), true
		w.lose(i)
	case 7:
		if !s.deleted { // SCRIPT FLUSH; after both nothing is left that could tell
			s.voted, s.forgotten = make(map[string]bool), true
		}
	case 8:
		s.behind = maps.Clone(s.data)
	case 9:
		if w.rng.IntN(3) == 0 {
			w.set(w.clients[c])
		}
	case 10: // an operator vouches, who knows that nothing was forgotten
		if !slices.ContainsFunc(s.grants, func(g grant) bool { return g.lost && g.until > w.now }) {
			w.examine(c, i, true)
		}
	}
	return nil
}

// For any sequence of clients with any settings, faults and operators: no client votes at a
// node that has forgotten a lock which still runs, unless an operator vouched for it.
func TestNobodyVotesWhereALockWasForgotten(t *testing.T) {
	inWorlds(t, "votes", 300, func(seed uint64, log func(string, ...any)) randomWorld { return newWorld(seed, log) })
}

func (w *world) pass() {
	if w.rng.IntN(3) == 0 {
		w.now += int64(w.rng.ExpFloat64() * 20)
	}
}

func (w *world) count() int { return w.votes }

// randomWorld is one in which things happen at random.
type randomWorld interface {
	// event fails where what happens next is not to.
	event() error
	// pass lets time pass, or not.
	pass()
	// count is how often what the world is about has come about.
	count() int
}

// inWorlds has so many events happen in a world for each seed, and fails where one does, or
// where too few of what is counted have come about.
func inWorlds(t *testing.T, what string, events int, start func(seed uint64, log func(string, ...any)) randomWorld) {
	t.Helper()
	try := func(seed uint64, log func(string, ...any)) (count int, err error) {
		w := start(seed, log)
		for range events {
			if err := w.event(); err != nil {
				return 0, err
			}
			w.pass()
		}
		return w.count(), nil
	}
	if *onlyWorld >= 0 {
		if _, err := try(uint64(*onlyWorld), t.Logf); err != nil {
			t.Error(err)
		}
		return
	}
	all := 0
	for seed := range *worlds {
		count, err := try(seed, func(string, ...any) {})
		if err != nil {
			t.Fatalf("%v\nreplay: go test -v -run %s -admission.world %d", err, t.Name(), seed)
		}
		all += count
	}
	t.Logf("%d %s in %d worlds", all, what, *worlds)
	if all < 10*int(*worlds) {
		t.Errorf("only %d %s: too little happened", all, what)
	}
}
