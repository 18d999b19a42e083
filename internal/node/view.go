package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/script"
)

// A master of a Cluster that hung, or was cut off, may have been replaced meanwhile. When it goes
// on, neither it nor its clients know that for a moment. So a master counts only while a majority
// of all masters says that it has the slot, and said so not long ago: the master that took its
// place votes for nobody for longer than that.

const (
	// viewRenew is the age from which a view is asked for anew, while votes go on.
	viewRenew = 500 * time.Millisecond
	// viewLimit is how old a view may be when a vote is sent. Together with the longest attempt it
	// is less than what a quarantine adds to the longest TTL.
	viewLimit = 1500 * time.Millisecond
)

var (
	errNoMajority = errors.New("no majority of the Cluster's masters says that its server has the slot")
	errReplaced   = errors.New("another server has the slot, or it has restarted, by the word of the Cluster's masters")
)

// view is what the masters of a Cluster last said about who has which slot.
type view struct {
	// ask asks the server that has the tag's slot.
	ask func(ctx context.Context, tag string) (driver.Reply, error)
	// clock is this machine's.
	clock clock.Clock
	// start runs a function on a goroutine that Close waits for.
	start func(func(ctx context.Context))
	// silent: no master has answered in the last whole round of questions, nor anything else since.
	silent atomic.Bool

	mu sync.Mutex // guards what follows; nothing is called while it is held
	// before is the last whole view. now is the one that answers are still coming to.
	before, now *opinions
	asking      bool
	// more is closed when an answer has come, or when the round has ended.
	more chan struct{}
}

// opinions are the answers to one round of questions, by the node id of the server that answered.
type opinions struct {
	began clock.Instant
	of    map[string]opinion
}

type opinion struct {
	run     string
	masters []master
}

// owner returns the run of the server that has the slot according to a majority of the masters; ""
// where there is no such majority or that server has not answered itself. All count that any answer calls masters: a
// server that was replaced, and does not know it yet, has a say, and with another such server could outvote a master that
// did not answer.
func (o *opinions) owner(slot uint16) (run string) {
	if o == nil {
		return ""
	}
	masters, votes := make(map[string]bool), make(map[string]int)
	for _, said := range o.of {
		for i := range said.masters {
			masters[said.masters[i].id] = true
			if _, ok := said.masters[i].held.Since(slot); ok {
				votes[said.masters[i].id]++
			}
		}
	}
	// rule: majority-of-masters
	for id, n := range votes {
		if n > len(masters)/2 {
			return o.of[id].run
		}
	}
	return ""
}

// confirm returns nil if the server with this run may be asked for a vote in the slot. Where the
// masters' last answers are too old, it waits for new ones, or for ctx. The error wraps
// driver.ErrNotSent.
func (v *view) confirm(ctx context.Context, slot uint16, run string) error {
	for asked := false; ; {
		v.mu.Lock()
		now, known := v.clock.Now(), false
		for _, o := range []*opinions{v.now, v.before} {
			if run != "" && o.owner(slot) == run && now.Since(o.began) < viewLimit {
				known = true
				break
			}
		}
		fresh := v.now != nil && now.Since(v.now.began) < viewRenew
		if !v.asking && (!fresh || !known && !asked) {
			asked = true
			v.begin(hashslot.TagOf(slot))
		}
		asking, more, owner := v.asking, v.more, v.now.owner(slot)
		v.mu.Unlock()
		switch {
		case known:
			return nil
		case owner != "" && owner != run:
			return driver.NotSent(errReplaced)
		case !asking:
			return driver.NotSent(errNoMajority)
		}
		select {
		case <-more:
		case <-ctx.Done():
			return driver.NotSent(errNoMajority)
		}
	}
}

// hasSlot returns an error where the masters do not say that the server that was seen has the node's
// slot.
func (n *Node) hasSlot(ctx context.Context, seen *sighting) error {
	err := n.options.view.confirm(ctx, hashslot.Of(n.options.slotTag), seen.run)
	if err != nil {
		n.noteReach(err)
	}
	return err
}

// refresh asks the masters that are known anew, unless they were asked a moment ago: a slot that was
// never used cannot be connected to, and nothing else may be asked of the other masters.
func (v *view) refresh(tag string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.asking && v.now != nil && len(v.now.of) > 0 && v.clock.Now().Since(v.now.began) >= viewRenew {
		v.begin(tag)
	}
}

// begin begins a round of questions. The caller holds v.mu.
func (v *view) begin(tag string) {
	before, now := v.now, &opinions{began: v.clock.Now(), of: make(map[string]opinion)}
	v.before, v.now, v.asking = before, now, true
	v.start(func(ctx context.Context) { v.renew(ctx, tag, before, now) })
}

// renew asks the master of the tag's slot, all masters that are known, and all that an answer
// names.
func (v *view) renew(ctx context.Context, tag string, before, now *opinions) {
	r := &viewRound{view: v, opinions: now, asked: make(map[string]bool)}
	r.ask(ctx, tag)
	if before != nil {
		for _, said := range before.of {
			r.askAll(ctx, said.masters)
		}
	}
	r.all.Wait()
	v.mu.Lock()
	v.asking = false
	v.silent.Store(len(now.of) == 0)
	v.told()
	v.mu.Unlock()
}

// viewRound is one round of questions.
type viewRound struct {
	view     *view
	opinions *opinions
	all      sync.WaitGroup

	mu    sync.Mutex      // guards asked; nothing is called while it is held
	asked map[string]bool // by tag
}

func (r *viewRound) askAll(ctx context.Context, masters []master) {
	for i := range masters {
		r.ask(ctx, masters[i].home())
	}
}

func (r *viewRound) ask(ctx context.Context, tag string) {
	r.mu.Lock()
	before := r.asked[tag]
	r.asked[tag] = true
	r.mu.Unlock()
	if before {
		return
	}
	r.all.Go(func() {
		reply, err := r.view.ask(ctx, tag)
		if err != nil || len(reply.Array) != 2 {
			return
		}
		masters, myself, err := parseMasters(reply.Array[1].Text)
		if err != nil {
			return
		}
		if slices.ContainsFunc(masters, func(m master) bool { return m.id == myself }) { // otherwise it has no say
			r.view.mu.Lock()
			r.opinions.of[myself] = opinion{run: reply.Array[0].Text, masters: masters}
			r.view.told()
			r.view.mu.Unlock()
		}
		r.askAll(ctx, masters)
	})
}

// told wakes those who wait for answers. The caller holds v.mu.
func (v *view) told() {
	close(v.more)
	v.more = make(chan struct{})
}

// newView returns the view of a Cluster.
func (c *Cluster) newView() *view {
	name := c.options.Agreement.Deployment
	return &view{
		more:  make(chan struct{}),
		clock: c.options.Clock,
		ask: func(ctx context.Context, tag string) (driver.Reply, error) {
			return eval(ctx, c.conn, script.Nodes.Text, []string{deploymentKey("admitted", name, tag)}, nil)
		},
		start: func(f func(context.Context)) {
			c.background.Go(func() {
				ctx, cancel := context.WithTimeout(c.life, viewLimit/2)
				defer cancel()
				f(ctx)
			})
		},
	}
}
