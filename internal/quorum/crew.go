package quorum

import "sync"

// maxIdle bounds the goroutines that a crew keeps for the next lane: enough for a
// hundred callers over five nodes, in some 4 MB of stacks.
const maxIdle = 512

// crew runs lanes on goroutines that it keeps: a fresh one would grow its stack
// anew for every command, which costs more than the command.
type crew struct {
	work    chan func()
	idle    chan struct{} // one for each goroutine that waits for work
	over    chan struct{}
	members sync.WaitGroup
}

func newCrew() *crew {
	return &crew{work: make(chan func()), idle: make(chan struct{}, maxIdle), over: make(chan struct{})}
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
		select {
		case lane = <-c.work:
			<-c.idle
		case <-c.over:
			return
		}
	}
}

// dismiss waits for all lanes. None may be run any more, but by other lanes.
func (c *crew) dismiss() {
	close(c.over)
	c.members.Wait()
}
