package quorum

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// maxIdle bounds the goroutines that a crew keeps for the next lane: enough for a
// hundred callers over five nodes, in some 4 MB of stacks. Of those that have
// nothing to do, all but fewIdle are let go after idleTime.
const (
	maxIdle  = 512
	fewIdle  = 32
	idleTime = time.Second
)

// crew runs lanes on goroutines that it keeps: a fresh one would grow its stack
// anew for every command, which costs more than the command.
type crew struct {
	clock   clock.Clock
	work    chan func()
	idle    chan struct{} // one for each goroutine that waits for work
	enough  chan struct{} // received by those who are let go
	waning  atomic.Bool   // wane is about to be called
	over    chan struct{}
	members sync.WaitGroup
}

func newCrew(c clock.Clock) *crew {
	return &crew{
		clock: c, work: make(chan func()), idle: make(chan struct{}, maxIdle),
		enough: make(chan struct{}), over: make(chan struct{}),
	}
}

// run has lane run by a goroutine that is free, or by a new one. It does not
// block.
func (c *crew) run(lane func()) {
	select {
	case c.work <- lane:
	default:
		c.members.Go(func() { c.serve(lane) })
	}
}

func (c *crew) serve(lane func()) {
	for {
		lane()
		select {
		case c.idle <- struct{}{}:
		default:
			return
		}
		c.wane()
		select {
		case lane = <-c.work:
			<-c.idle
		case <-c.enough:
			<-c.idle
			return
		case <-c.over:
			return
		}
	}
}

// wane sees to it that those who are too many are let go, unless there is work for
// them before.
func (c *crew) wane() {
	if len(c.idle) > fewIdle && c.waning.CompareAndSwap(false, true) {
		c.clock.AfterFunc(idleTime, func() {
			for range len(c.idle) - fewIdle {
				select {
				case c.enough <- struct{}{}:
				default:
				}
			}
			c.waning.Store(false)
		})
	}
}

// dismiss waits for all lanes. None may be run any more, but by other lanes.
func (c *crew) dismiss() {
	close(c.over)
	c.members.Wait()
}
