//go:build linux

package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/spawn"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

// workers are all workers of a run, the probe last.
type workers []*workerState

// workerState is one worker. When its process ends before the run does, it gets a new one.
type workerState struct {
	command    []string
	assignment worker.Assignment // of the present process
	callers    int
	dir        string // of the logs
	side       side
	settle     func(pid int, s side) // called with each process that is started, unless nil

	// turn holds one token, which a fault of the worker has to hold.
	turn chan struct{}

	mu       sync.Mutex // guards what follows; nothing is called while it is held
	life     *life      // the present process
	lives    []*life    // all processes so far
	stopped  bool       // by SIGSTOP, now
	starving bool
}

// life is one process of a worker.
type life struct {
	*spawn.Process
	logs   []string // of its callers
	number int
	ready  chan struct{} // closed once the process has reported that it is ready
	rested chan struct{} // gets a value for each report that the process is at rest
	read   chan struct{} // closed when the process's stdout has ended
	failed string        // the last report of a failure; complete once read is closed
	died   int64         // when the process was killed or found dead, or 0
}

// fallen says how the present process ended if it ended by itself, else "". It says so only once.
func (w *workerState) fallen() string {
	l := w.now()
	select {
	case <-l.Exited:
	default:
		return ""
	}
	if l.died != 0 {
		return ""
	}
	<-l.read
	l.died = worker.Now()
	return fmt.Sprintf("worker %d.%d ended by itself (%v): %s%s", w.assignment.Worker, l.number, l.Err(), l.failed, l.Said())
}

// workerGrace is how long a worker may take to become ready, and to end.
const workerGrace = 30 * time.Second

// stopLimit is how long a process may take to stop after SIGSTOP, on a busy machine.
const stopLimit = 10 * time.Second

// callers is how many goroutines of a worker take locks. With two, the worker sometimes contends with
// itself.
const callers = 2

// How long locks are held, and which share of them for about a TTL. The control run holds locks longer, so
// that its violations show soon.
const (
	ordinaryHold = 6   // ms at most
	controlHold  = 100 // ms at most, in the control run
	longHolds    = 0.003
	// With one node there are more long holds, so that each fault meets locks that are held.
	longHoldsAlone = 0.03
)

// startWorkers starts the workers and the probe, and waits until they are ready. If it fails, it leaves
// none running.
func startWorkers(ctx context.Context, o Options, g *ground, dir, register string, control bool) (workers, error) {
	var c workers
	errs := make([]error, o.Workers+1)
	names := o.lockNames()
	var starting sync.WaitGroup
	for i := range o.Workers + 1 {
		w := &workerState{command: o.WorkerCommand, callers: callers, dir: dir, turn: make(chan struct{}, 1)}
		if g.node != nil {
			w.settle = g.node.settle
		}
		w.side = side(i % 2)
		w.assignment = worker.Assignment{
			Worker: i + 1, Nodes: g.urls(w.side), Names: names, TTLMS: o.TTL.Milliseconds(),
			Register: register, Seed: o.Seed, HoldMS: ordinaryHold, LongHolds: longHolds, Deployment: o.prefix, Control: control,
			Primitives: o.primitives, Permits: permits,
		}
		if o.Topology.ensemble() {
			w.assignment.Engine = string(o.Topology)
		}
		if o.Topology.alone() {
			w.assignment.LongHolds = longHoldsAlone
		}
		if control {
			w.assignment.HoldMS = controlHold
			if o.Topology.alone() {
				w.assignment.HoldMS = o.TTL.Milliseconds() // so that holders still rely on locks after a fault
			}
			if o.Topology.ensemble() {
				w.assignment.HoldMS *= 3 // so that they still do when the next holder has the lock
			}
		}
		if i == o.Workers {
			w.side = observers
			w.assignment.Probe, w.assignment.Names = true, o.probeNames()
			w.callers = len(w.assignment.Names)
			w.assignment.Nodes = g.urls(observers)
		}
		c = append(c, w)
		starting.Go(func() { errs[i] = w.start(ctx) })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

// guest returns one more worker, on the probe's side and with one caller. It is not started yet. number
// is how many guests there were before.
func (c workers) guest(o Options, number int) *workerState {
	probe := c[len(c)-1]
	w := &workerState{command: o.WorkerCommand, callers: 1, dir: probe.dir, side: observers, settle: probe.settle, turn: make(chan struct{}, 1)}
	w.assignment = worker.Assignment{
		Worker: len(c) + 1 + number, Nodes: probe.assignment.Nodes, Names: o.lockNames(), TTLMS: probe.assignment.TTLMS,
		Register: probe.assignment.Register, Seed: o.Seed, HoldMS: ordinaryHold, LongHolds: longHoldsAlone, Deployment: probe.assignment.Deployment,
		Primitives: o.primitives, Permits: permits,
	}
	return w
}

// start starts the next process of the worker and waits until it is ready.
func (w *workerState) start(ctx context.Context) error {
	w.mu.Lock()
	w.assignment.Life = len(w.lives) + 1
	a := w.assignment
	w.mu.Unlock()
	for i := range w.callers {
		a.Logs = append(a.Logs, filepath.Join(w.dir, fmt.Sprintf("worker-%d-%d-%d.jsonl", a.Worker, a.Life, i+1)))
	}
	p, err := spawn.Start(w.command, a)
	if err != nil {
		return fmt.Errorf("worker %d: %w", a.Worker, err)
	}
	if w.settle != nil {
		w.settle(p.PID(), w.side)
	}
	l := &life{Process: p, logs: a.Logs, number: a.Life, ready: make(chan struct{}), rested: make(chan struct{}, 16), read: make(chan struct{})}
	w.mu.Lock()
	w.life = l
	w.lives = append(w.lives, l)
	w.mu.Unlock()
	go l.listen() // ends with the process; dismiss and kill wait for that
	ctx, cancel := context.WithTimeout(ctx, workerGrace)
	defer cancel()
	select {
	case <-l.ready:
		return nil
	case <-l.read:
		return fmt.Errorf("worker %d ended as it began: %s%s", a.Worker, l.failed, l.Said())
	case <-ctx.Done():
		return fmt.Errorf("worker %d is not ready: %w", a.Worker, context.Cause(ctx))
	}
}

// listen reads the reports of the process until its stdout ends.
func (l *life) listen() {
	defer close(l.read)
	defer l.Output.Close()
	lines := bufio.NewScanner(l.Output)
	for lines.Scan() {
		var r worker.Report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			l.failed = fmt.Sprintf("it reported %q: %v", lines.Text(), err)
			continue
		}
		switch {
		case r.Ready:
			select {
			case <-l.ready: // the worker reports it again
			default:
				close(l.ready)
			}
		case r.Rested:
			select {
			case l.rested <- struct{}{}:
			default: // more reports than a look has asked for
			}
		default:
			l.failed = r.Failed
		}
	}
}

// now returns the present process.
func (w *workerState) now() *life {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.life
}

// stop stops the process (SIGSTOP) and returns when it has stopped.
func (w *workerState) stop() error {
	l := w.now()
	if err := l.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	w.mark(true)
	for deadline := time.Now().Add(stopLimit); time.Now().Before(deadline); time.Sleep(200 * time.Microsecond) {
		if state(l.PID()) == 'T' {
			return nil
		}
	}
	return fmt.Errorf("process %d did not stop", l.PID())
}

// resume has the process run again (SIGCONT).
func (w *workerState) resume() error {
	w.mark(false)
	return w.now().Signal(syscall.SIGCONT)
}

// mark notes whether the process is stopped.
func (w *workerState) mark(stopped bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = stopped
}

// killed kills the process and notes when it had ended.
func (w *workerState) killed() {
	l := w.now()
	l.Kill()
	if l.died == 0 {
		l.died = worker.Now()
	}
	<-l.read
	w.mark(false)
}

// state returns the letter of the state of a process (proc(5)), or 0 if the process is gone.
func state(pid int) byte {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	for i := len(stat) - 3; i > 0; i-- {
		if stat[i] == ')' { // the last one: the name before it may contain any character
			return stat[i+2]
		}
	}
	return 0
}

// tell sends an order to all workers.
func (c workers) tell(order string) {
	for _, w := range c {
		_ = w.now().Tell(order) // fails if the process has ended, and then watch replaces it
	}
}

// dismiss ends all workers in order. It returns a line for each that failed or had to be killed.
func (c workers) dismiss() []string {
	said := make([]string, len(c))
	var ending sync.WaitGroup
	for i, w := range c {
		ending.Go(func() {
			if said[i] = w.fallen(); said[i] != "" {
				return
			}
			l := w.now()
			err := l.Finish(workerGrace)
			<-l.read
			if err != nil && l.died == 0 {
				l.died = worker.Now()
				said[i] = fmt.Sprintf("worker %d: %s %v", i+1, l.failed, err)
			}
		})
	}
	ending.Wait()
	return clean(said)
}

// clean returns the strings that are not empty.
func clean(said []string) []string {
	var some []string
	for _, s := range said {
		if s != "" {
			some = append(some, s)
		}
	}
	return some
}

// kill kills all workers and returns when they are gone.
func (c workers) kill() {
	for _, w := range c {
		if l := w.now(); l != nil {
			l.Kill()
			<-l.read
		}
	}
}

// processes returns the logs of all processes of the workers, with one entry for each caller.
func (c workers) processes() []history.Process {
	var ps []history.Process
	for _, w := range c {
		for _, l := range w.lives {
			for _, log := range l.logs {
				ps = append(ps, history.Process{Worker: w.assignment.Worker, Life: l.number, Log: log, TTL: w.assignment.TTL(), Died: l.died, Probe: w.assignment.Probe})
			}
		}
	}
	return ps
}

// starve notes whether the worker is starved.
func (w *workerState) starve(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.starving = on
}

// slow reports whether the worker is stopped or starved. Nobody should wait for it then.
func (w *workerState) slow() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopped || w.starving
}
