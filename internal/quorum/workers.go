package quorum

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// maxIdle bounds the goroutines that workers keeps for the next step: enough for a hundred callers
// over five nodes, in some 4 MB of stacks. Of the idle ones, all but fewIdle are let go after
// idleTime.
const (
	maxIdle  = 512
	fewIdle  = 32
	idleTime = time.Second
)

// workers runs steps on goroutines that it keeps: a new goroutine would grow its stack anew for
// every command, which costs more than the command.
type workers struct {
	clock   clock.Clock
	work    chan func()
	idle    chan struct{} // one for each goroutine that waits for work
	enough  chan struct{} // received by goroutines that are let go
	waning  atomic.Bool   // wane is about to be called
	over    chan struct{}
	members sync.WaitGroup
}

func newWorkers(c clock.Clock) *workers {
	return &workers{
		clock: c, work: make(chan func()), idle: make(chan struct{}, maxIdle),
		enough: make(chan struct{}), over: make(chan struct{}),
	}
}

// run has step run by an idle goroutine, or by a new one. It does not block.
func (c *workers) run(step func()) {
	select {
	case c.work <- step:
	default:
		c.members.Go(func() { c.serve(step) })
	}
}

func (c *workers) serve(step func()) {
	for {
		step()
		select {
		case c.idle <- struct{}{}:
		default:
			return
		}
		c.wane()
		select {
		case step = <-c.work:
			<-c.idle
		case <-c.enough:
			<-c.idle
			return
		case <-c.over:
			return
		}
	}
}

// wane ends the goroutines that are idle beyond fewIdle, unless there is work for them before
// idleTime is over.
func (c *workers) wane() {
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

// dismiss waits for all steps. After it was called, only other steps may run more of them.
func (c *workers) dismiss() {
	close(c.over)
	c.members.Wait()
}
