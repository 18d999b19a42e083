//go:build unix

package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
)

// stage is a race that is running. One goroutine uses it. What takes time runs in other
// goroutines, which send their results to it by channels.
type stage struct {
	options Options
	ground  *ground
	workers *workers
	client  *redlatch.Client
	view    *view

	start   time.Time
	tally   *tally
	stories []*story
	faults  faults
	// outs has each change of the number of nodes that are out, in order of time.
	outs []outCount

	deeds  chan deed      // results of the goroutines in acting
	acting sync.WaitGroup // takes nodes out and brings them back
}

// outCount says that out nodes are out since a moment.
type outCount struct {
	since int64 // ns since 1970
	out   int
}

// deed is the result of taking a node out or of bringing it back.
type deed struct {
	story *story
	end   time.Time
	back  bool // the node was brought back
	err   error
}

func newStage(o Options, g *ground, c *workers, client *redlatch.Client) *stage {
	s := &stage{options: o, ground: g, workers: c, client: client, view: newView(o.Out), start: time.Now()}
	s.deeds = make(chan deed, len(g.nodes)) // at most one for each node at a time
	for i, n := range g.nodes {
		s.stories = append(s.stories, &story{number: i + 1, address: n.Addr(), keeps: g.ensemble != nil})
	}
	s.faults = faults{length: o.For, nodes: s.stories, forget: g.ensemble == nil}
	s.tally = newTally(o.Workers, o.Nodes, s.start)
	return s
}

// announce writes what the demo is about to do.
func (s *stage) announce() {
	s.view.say("redlatch-torture demo: %d nodes, %d worker processes, %s", s.options.Nodes, s.options.Workers, clockTime(s.options.For))
	s.view.say("nodes: %s", s.ground.kind)
	task := "workers: each takes the lock, then reads, changes and writes one shared file"
	if s.options.NoLock {
		task = "workers: each reads, changes and writes one shared file, WITHOUT the lock"
	}
	s.view.say("%s", task)
}

// redrawEvery is how often the view is redrawn, and how often direct starts and ends faults.
const redrawEvery = 100 * time.Millisecond

// play runs the race until its time is over or ctx is done.
func (s *stage) play(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.start = time.Now()
	s.tally.gaps.last = s.start.UnixNano()
	observations := make(chan observation)
	var watching sync.WaitGroup
	defer func() {
		cancel()
		watching.Wait()
		s.acting.Wait()
		for len(s.deeds) > 0 {
			_ = s.done(<-s.deeds) // an error now only means that the end of ctx interrupted it
		}
		s.thaw()
	}()
	watching.Go(func() {
		if s.ground.ensemble != nil {
			inquiry{nodes: s.ground.nodes, answers: observations}.watch(ctx)
			return
		}
		observer{client: s.client, answers: observations}.watch(ctx)
	})

	end := time.NewTimer(s.options.For)
	defer end.Stop()
	ticker := time.NewTicker(redrawEvery)
	defer ticker.Stop()
	for s.view.err == nil {
		select {
		case n, ok := <-s.workers.notes:
			switch {
			case !ok:
				return nil // all workers have ended, and dismiss will say why
			case n.Failed != "":
				return fmt.Errorf("worker %d: %s", n.worker+1, n.Failed)
			}
			s.note(n)
		case o := <-observations:
			s.observe(o)
		case d := <-s.deeds:
			if err := s.done(d); err != nil {
				return err
			}
		case <-ticker.C:
			s.direct(ctx)
			s.view.draw(s.now(), s.block())
		case <-end.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// thaw resumes the nodes that still hang when the race is over. Otherwise the workers would wait
// for them when they release their locks. The stories do not mention it.
func (s *stage) thaw() {
	for i, story := range s.stories {
		if o := story.out(); o != nil && o.fault == hung && o.back == 0 {
			_ = s.ground.nodes[i].Resume() // without it the workers only take longer to end
		}
	}
}

// now returns the time since the race began.
func (s *stage) now() time.Duration { return time.Since(s.start) }

// note adds a worker's report to the tally, with the number of nodes that were out at its turn.
func (s *stage) note(n note) {
	if n.over {
		return
	}
	out := 0
	for _, o := range slices.Backward(s.outs) {
		if n.Turn >= o.since {
			out = o.out
			break
		}
	}
	s.tally.add(n.worker, n.report, out)
}

// observe updates the stories with the answers of the nodes.
func (s *stage) observe(o observation) {
	asked := o.asked.Sub(s.start)
	for i, a := range o.nodes {
		if news := s.stories[i].hear(asked, s.now(), a); news != "" {
			s.view.happen(s.now(), "node %d: %s", i+1, news)
		}
	}
	s.countOut()
}

// countOut appends to outs if the number of nodes that are out has changed.
func (s *stage) countOut() {
	out := s.faults.out()
	if n := len(s.outs); n == 0 || s.outs[n-1].out != out {
		s.outs = append(s.outs, outCount{time.Now().UnixNano(), out})
	}
}

// direct brings back the nodes that are due, and takes the next node out if it is time.
func (s *stage) direct(ctx context.Context) {
	now := s.now()
	for _, story := range s.stories {
		if o := story.out(); o != nil && o.back == 0 && !o.returning && o.due != 0 && now >= o.due {
			o.returning = true
			node := s.ground.nodes[story.number-1]
			s.do(deed{story: story, back: true}, func() error {
				if o.fault == hung {
					return node.Resume()
				}
				return s.ground.restart(ctx, story.number-1)
			})
		}
	}
	story, kind, ok := s.faults.choose(now)
	if !ok {
		return
	}
	story.fail(kind, now)
	s.countOut()
	node := s.ground.nodes[story.number-1]
	s.do(deed{story: story}, func() error {
		if kind == hung {
			return node.Pause()
		}
		node.Kill()
		return nil
	})
}

// do runs act in a goroutine and then sends d with its result. There is at most one act for each node
// at a time.
func (s *stage) do(d deed, act func() error) {
	s.acting.Go(func() {
		d.err = act()
		d.end = time.Now()
		s.deeds <- d
	})
}

// done notes in the node's story what was done, and shows it.
func (s *stage) done(d deed) error {
	at, o := d.end.Sub(s.start), d.story.out()
	switch {
	case d.err != nil:
		return fmt.Errorf("node %d (%s): %w", d.story.number, d.story.address, d.err)
	case !d.back && o.fault == killed:
		o.due = at + killFor
		s.view.happen(at, "node %d: killed", d.story.number)
	case !d.back:
		o.due = at + hangFor
		s.view.happen(at, "node %d: hung (SIGSTOP)", d.story.number)
	case o.fault == killed:
		o.back = at
		s.view.happen(at, "node %d: back, %s", d.story.number, d.story.brings())
	default:
		o.back = at
		s.view.happen(at, "node %d: goes on (SIGCONT)", d.story.number)
	}
	return nil
}

// block returns the lines of the present state. Without a terminal there is only the first one.
func (s *stage) block() []line {
	now := s.now()
	head := line{text: fmt.Sprintf("%d acquisitions, %d overlaps, %d of %d nodes out",
		s.tally.acquisitions, s.tally.overlaps.n, s.faults.out(), len(s.stories))}
	if s.options.NoLock {
		head.text = fmt.Sprintf("%d updates, %d overlaps", s.tally.updates, s.tally.overlaps.n)
	}
	if s.tally.overlaps.n > 0 {
		head.tone = bad
	}
	if !s.view.live {
		return []line{head}
	}
	head.text = fmt.Sprintf("%.1f/%s: %s", min(now, s.options.For).Seconds(), clockTime(s.options.For), head.text)
	lines := []line{{}, head}
	for _, story := range s.stories {
		state, tone := story.state(now)
		lines = append(lines, line{fmt.Sprintf("  node %-2d    %-21s  %s", story.number, story.address, state), tone})
	}
	for i, w := range s.tally.workers {
		lines = append(lines, line{fmt.Sprintf("  worker %-2d  %5d acquisitions, longest wait %s", i+1, w.acquisitions, span(w.longestWait)), faint})
	}
	return lines
}
