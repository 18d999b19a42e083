//go:build unix

package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/spawn"
)

// workers are the worker processes.
type workers struct {
	processes []*spawn.Process
	// notes gets the workers' reports. It is closed when all workers have ended, and somebody has to
	// receive from it until then.
	notes   chan note
	reading sync.WaitGroup
}

// note is a report of one worker, or says that no more will come from it.
type note struct {
	worker int // from 0
	report
	over bool // no more reports will come
}

// workerGrace is how long a worker may take to stop: it has to finish its turn, and to
// release its lock while some nodes may hang.
const workerGrace = 5 * time.Second

// startWorkers starts the workers, which wait for race. If it fails, it leaves no worker running.
func startWorkers(n int, a assignment) (*workers, error) {
	// On a failure nobody receives: there is room for the first and the last note of each worker.
	c := &workers{notes: make(chan note, 64+2*n)}
	for i := range n {
		a.Worker = i + 1
		p, err := start(WorkerCommand, a)
		if err != nil {
			for _, p := range c.processes {
				p.Kill()
			}
			c.reading.Wait()
			return nil, fmt.Errorf("worker %d: %w", a.Worker, err)
		}
		c.processes = append(c.processes, p)
		c.reading.Go(func() { c.read(i, p) })
	}
	go func() {
		c.reading.Wait()
		close(c.notes)
	}()
	return c, nil
}

// start starts this program again, with a hidden command and its first line of input.
func start(command string, order any) (*spawn.Process, error) {
	self, err := spawn.Self(command)
	if err != nil {
		return nil, err
	}
	return spawn.Start(self, order)
}

// read sends the reports of a worker to notes until its stdout ends.
func (c *workers) read(worker int, p *spawn.Process) {
	defer p.Output.Close()
	lines := bufio.NewScanner(p.Output)
	for lines.Scan() {
		var r report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			r = report{Failed: fmt.Sprintf("it reported %q: %v", lines.Text(), err)}
		}
		c.notes <- note{worker: worker, report: r}
	}
	c.notes <- note{worker: worker, over: true}
}

// ready waits until all workers have connected.
func (c *workers) ready(ctx context.Context) error {
	for waiting := len(c.processes); waiting > 0; {
		select {
		case n := <-c.notes:
			switch {
			case n.Failed != "":
				return fmt.Errorf("worker %d: %s", n.worker+1, n.Failed)
			case n.over:
				return fmt.Errorf("worker %d ended before the race began%s", n.worker+1, c.processes[n.worker].Said())
			case n.Ready:
				waiting--
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// race tells all workers to start.
func (c *workers) race() error {
	for i, p := range c.processes {
		if err := p.Tell("go"); err != nil {
			return fmt.Errorf("worker %d: %w", i+1, err)
		}
	}
	return nil
}

// dismiss stops all workers and calls hear with the reports that they still send. It returns a line
// for each worker that failed or had to be killed.
func (c *workers) dismiss(hear func(note)) []string {
	deaths := make([]string, len(c.processes))
	var stopping sync.WaitGroup
	for i, p := range c.processes {
		stopping.Go(func() {
			if err := p.Finish(workerGrace); err != nil {
				deaths[i] = fmt.Sprintf("worker %d: %v", i+1, err)
			}
		})
	}
	for n := range c.notes {
		hear(n)
	}
	stopping.Wait()
	var said []string
	for _, d := range deaths {
		if d != "" {
			said = append(said, d)
		}
	}
	return said
}
