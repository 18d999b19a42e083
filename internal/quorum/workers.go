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
func (w *workers) run(step func()) {
	select {
	case w.work <- step:
	default:
		w.members.Go(func() { w.serve(step) })
	}
}

func (w *workers) serve(step func()) {
	for {
		step()
		select {
		case w.idle <- struct{}{}:
		default:
			return
		}
		w.wane()
		select {
		case step = <-w.work:
			<-w.idle
		case <-w.enough:
			<-w.idle
			return
		case <-w.over:
			return
		}
	}
}

// wane ends the goroutines that are idle beyond fewIdle, unless there is work for them before
// idleTime is over.
func (w *workers) wane() {
	if len(w.idle) > fewIdle && w.waning.CompareAndSwap(false, true) {
		w.clock.AfterFunc(idleTime, func() {
			for range len(w.idle) - fewIdle {
				select {
				case w.enough <- struct{}{}:
				default:
				}
			}
			w.waning.Store(false)
		})
	}
}

// dismiss waits for all steps. After it was called, only other steps may run more of them.
func (w *workers) dismiss() {
	close(w.over)
	w.members.Wait()
}
