package sim

import "time"

// How often others may come before a process that stands in the queue: each once, and one
// who holds the lock then; and how many callers of one may have it by a turn, the last
// few of which no node could tell that somebody had come.
const (
	maxTurns   = 2
	maxOneTurn = 9
	unawares   = 8
)

// Turns watches the processes that want one lock all the time, and says when one waits while
// others have it too often. It is not safe for concurrent use.
type Turns struct {
	judge *Judge
	// Settle is how long a process may take to get its place, and a slow node to tell
	// others that it has. Longest is the most that a caller holds the lock for.
	Settle, Longest time.Duration

	processes []*Turn
	last      *Turn // who had the lock last
}

// Turn is one process in the queue.
type Turn struct {
	Name    string
	waiting int
	// since is when the process began to wait. Since it has its place, turns are how
	// often each other had the lock before it, and row how many of the last had.
	since time.Duration
	turns map[*Turn]int
	row   int
	// Served is how often its callers had the lock.
	Served int
}

// NewTurns returns a judge of turns that condemns by j.
func NewTurns(j *Judge) *Turns { return &Turns{judge: j} }

// Add adds a process.
func (t *Turns) Add(name string) *Turn {
	c := &Turn{Name: name}
	t.processes = append(t.processes, c)
	return c
}

// Comes notes that a caller of c waits.
func (t *Turns) Comes(c *Turn) {
	if c.waiting++; c.waiting == 1 {
		c.begin(t.judge.world.Now())
	}
}

// begin has c stand at the end of the queue.
func (c *Turn) begin(now time.Duration) { c.since, c.turns, c.row = now, make(map[*Turn]int), 0 }

// Serves notes that a caller of c has the lock, and looks who waited for longer.
func (t *Turns) Serves(c *Turn) {
	now := t.judge.world.Now()
	turn := c != t.last
	if turn {
		if t.last != nil {
			t.last.begin(now) // if it waits it does so behind the others
		}
		t.last = c
	}
	c.waiting--
	c.Served++
	for _, o := range t.processes {
		if o == c || o.waiting == 0 || now < o.since+t.Settle {
			continue
		}
		if turn {
			o.turns[c]++
			o.row = 0
		}
		o.row++
		if o.turns[c] > maxTurns {
			t.judge.Condemn("fair: %s waits since %v, and %s had %d turns meanwhile", o.Name, o.since, c.Name, o.turns[c])
		}
		if o.row > maxOneTurn && (o.turns[c] > 0 || o.row > maxOneTurn+unawares) {
			t.judge.Condemn("fair: %s waits since %v, and %s had the lock %d times in a row meanwhile", o.Name, o.since, c.Name, o.row)
		}
	}
	if most := t.longest(); now-c.since > most {
		t.judge.Condemn("the longest wait: %s waits since %v, for longer than %v, which is what the others' turns may take", c.Name, c.since, most)
	}
}

// longest is the longest that a process waits: what the most turns of all others take, of
// which each time somebody holds the lock and a little more goes by.
func (t *Turns) longest() time.Duration {
	holders := (len(t.processes) - 1) * maxTurns * (maxOneTurn + unawares)
	return t.Settle + time.Duration(holders)*(t.Longest+t.Settle/4)
}
