package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// Work is the process of one worker. It returns when orders end, or on what it
// cannot go on after.
func Work(orders io.Reader, reports io.Writer, open func(Assignment) (Locker, error)) error {
	lines := bufio.NewReader(orders)
	first, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading the assignment: %w", err)
	}
	w := &worker{reports: json.NewEncoder(reports)}
	if err := json.Unmarshal(first, &w.Assignment); err != nil {
		return fmt.Errorf("reading the assignment: %w", err)
	}
	if err := w.work(lines, open); err != nil {
		return errors.Join(err, w.reports.Encode(Report{Failed: err.Error()}))
	}
	return nil
}

// How a worker spends its time.
const (
	hastyShare    = 0.1 // acquisitions that are given up soon, in the middle of a try
	hastyPatience = 30 * time.Millisecond
	longestPause  = 20 * time.Millisecond
	patienceTTLs  = 4   // how long others are waited for, in TTLs
	briefShare    = 0.5 // acquisitions that wait for less than a quarter of a TTL, or all would wait for one lock that is stuck
)

type worker struct {
	Assignment
	reports *json.Encoder
	locker  Locker
	callers []*caller
	orders  orders
}

// caller is one of the goroutines of a worker that take locks.
type caller struct {
	*worker
	number int
	log    *log
	at     *register // nil for a probe
	rand   *rand.Rand
	writes int
}

func (w *worker) work(lines *bufio.Reader, open func(Assignment) (Locker, error)) (err error) {
	for i, path := range w.Logs {
		c := &caller{worker: w, number: i + 1, rand: rand.New(rand.NewPCG(w.Seed, uint64(w.Worker)<<40|uint64(w.Life)<<8|uint64(i)))}
		if c.log, err = openLog(path); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.log.close()) }()
		if !w.Probe {
			if c.at, err = dialRegister(w.Register); err != nil {
				return err
			}
			defer c.at.conn.Close()
		}
		w.callers = append(w.callers, c)
	}
	if w.locker, err = open(w.Assignment); err != nil {
		return err
	}
	// What it could not release, its log and the nodes tell.
	defer func() { _ = w.locker.Close() }()
	if err := w.reports.Encode(Report{Ready: true}); err != nil {
		return err
	}
	w.orders.init()
	go w.orders.listen(lines) // ends with stdin, or with the process
	for {
		working, rested := w.orders.next()
		switch {
		case working == nil:
			return nil
		case rested:
			if err := w.reports.Encode(Report{Rested: true}); err != nil {
				return err
			}
		default:
			if err := w.toil(working); err != nil {
				return err
			}
		}
	}
}

// toil has all callers work until ctx ends, or one of them fails.
func (w *worker) toil(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(w.callers))
	var working sync.WaitGroup
	for i, c := range w.callers {
		working.Go(func() {
			defer cancel()
			for ctx.Err() == nil && errs[i] == nil {
				errs[i] = errors.Join(c.turn(ctx), c.log.err)
				pause := ProbePause
				if !w.Probe {
					pause = time.Duration(c.rand.Int64N(int64(longestPause)))
				}
				sleep(ctx, pause)
			}
		})
	}
	working.Wait()
	return errors.Join(errs...)
}

// turn takes what it is to take, does what it is for, and lets it go. ctx ends the waiting.
func (c *caller) turn(ctx context.Context) error {
	want := c.choose()
	patience := patienceTTLs * c.TTL()
	switch luck := c.rand.Float64(); {
	case c.Probe:
		patience = ProbePatience
	case luck < hastyShare:
		patience = time.Duration(c.rand.Int64N(int64(hastyPatience)))
	case luck < hastyShare+briefShare:
		patience = time.Duration(c.rand.Int64N(int64(c.TTL() / 4)))
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	names := want.resources()
	c.log.write(Event{Kind: Call, Name: names[0], With: names[1:]})
	hold, err := c.take(waiting, want)
	cancel()
	if err != nil {
		c.log.write(Event{Kind: Fail, Name: names[0], Err: brief(err)})
		return nil
	}
	until := monotonic(hold.Until())
	names = want.held(hold)
	name := names[0]
	c.log.write(Event{Kind: Acquired, Name: name, With: names[1:], Until: until, Token: hold.Token(), Shared: want.Primitive == Shared})
	switch {
	case c.Probe:
	case want.Primitive == Shared:
		err = c.look(ctx, name, hold, until)
	default:
		err = c.visit(ctx, names, hold, until)
	}
	// Before it begins: from here on the lock is not relied on.
	c.log.write(Event{Kind: Releasing, Name: name})
	released := Event{Kind: Released, Name: name}
	if err := hold.Unlock(context.WithoutCancel(ctx)); err != nil {
		released.Err = brief(err)
	}
	c.log.write(released)
	return err
}

// visit changes the registers of all names under the lock, as a program would that looks
// whether it holds the lock before it writes, and knows no better.
func (c *caller) visit(ctx context.Context, names []string, hold Hold, until int64) error {
	request := Request{Worker: c.Worker, Token: hold.Token()}
	read, stale := make([]Reply, len(names)), false
	for i, name := range names {
		request.Op, request.Name = OpRead, name
		reply, err := c.read(request)
		if err != nil {
			return err
		}
		read[i], stale = reply, stale || reply.Stale
	}
	if stale || !c.labour(ctx, names[0], hold, until) {
		c.log.write(Event{Kind: Lost, Name: names[0]})
		return nil
	}
	request.Op, request.Name = OpPrepare, names[0]
	if _, err := c.at.ask(request); err != nil {
		return err
	}
	c.writes++
	request.Op, request.ID = OpWrite, fmt.Sprintf("%d.%d.%d.%d", c.Worker, c.Life, c.number, c.writes)
	for i, name := range names {
		request.Name, request.Open, request.Guarded = name, read[i].Open, read[i].Guarded
		c.log.write(Event{Kind: Writing, Name: name, Token: hold.Token(), ID: request.ID})
		wrote, err := c.at.ask(request)
		if err != nil {
			return err
		}
		c.log.write(Event{Kind: Wrote, Name: name, Token: hold.Token(), ID: request.ID, Stale: wrote.Stale})
	}
	return nil
}

// look reads the registers under a reader's lock, and reads them again after its work.
func (c *caller) look(ctx context.Context, name string, hold Hold, until int64) error {
	request := Request{Worker: c.Worker, Op: OpRead, Name: name, Token: hold.Token(), Shared: true}
	for range 2 {
		reply, err := c.read(request)
		if err != nil {
			return err
		}
		if reply.Stale || !c.labour(ctx, name, hold, until) {
			c.log.write(Event{Kind: Lost, Name: name})
			return nil
		}
	}
	return nil
}

// read asks for the registers of a name.
func (c *caller) read(request Request) (Reply, error) {
	c.log.write(Event{Kind: Reading, Name: request.Name, Token: request.Token, Shared: request.Shared})
	reply, err := c.at.ask(request)
	if err == nil {
		c.log.write(Event{Kind: Read, Name: request.Name, Token: request.Token, Open: reply.Open, Guarded: reply.Guarded, Stale: reply.Stale})
	}
	return reply, err
}

// labour takes the time that the work under the lock takes, and reports whether
// the lock is held at its end. An order to rest cuts it short.
func (c *caller) labour(ctx context.Context, name string, hold Hold, until int64) bool {
	span := time.Duration(c.rand.Float64() * float64(c.HoldMS) * float64(time.Millisecond))
	if c.rand.Float64() < c.LongHolds {
		span = c.TTL()/2 + time.Duration(c.rand.Int64N(int64(c.TTL())))
	}
	extender, _ := hold.(Extender)
	renewed := time.Now()
	for end := renewed.Add(span); ; {
		if hold.Err() != nil {
			return false
		}
		if now := monotonic(hold.Until()); now > until+int64(time.Millisecond) {
			until = now
			c.log.write(Event{Kind: Extended, Name: name, Until: until})
		}
		left := time.Until(end)
		if left <= 0 || ctx.Err() != nil {
			return true
		}
		if extender != nil && time.Since(renewed) > c.TTL()/3 {
			renewed = time.Now()
			// One that failed is tried again; the end of the validity decides.
			_ = extender.Extend(ctx)
		}
		sleep(ctx, min(left, 10*time.Millisecond))
	}
}

// monotonic puts a time into what Now counts. It is never later than it should
// be: what passes between the two readings is taken off.
func monotonic(t time.Time) int64 {
	now := Now()
	return now + int64(time.Until(t))
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func brief(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", " ")
	return text[:min(len(text), 160)]
}

// orders are what stdin says, as they stand.
type orders struct {
	mu      sync.Mutex // guards the fields below
	working context.Context
	stop    context.CancelFunc // of working
	asked   bool               // to rest, and that has not been answered
	over    bool
	changed chan struct{} // closed and replaced when one of them changes
}

func (o *orders) init() {
	o.working, o.stop = context.WithCancel(context.Background())
	o.stop()
	o.changed = make(chan struct{})
}

func (o *orders) listen(lines *bufio.Reader) {
	for {
		line, err := lines.ReadString('\n')
		o.mu.Lock()
		switch {
		case err != nil:
			o.over = true
			o.stop()
		case strings.Contains(line, Rest):
			o.asked = true
			o.stop()
		case strings.Contains(line, Go):
			o.asked = false
			if o.working.Err() != nil {
				o.working, o.stop = context.WithCancel(context.Background())
			}
		}
		close(o.changed)
		o.changed = make(chan struct{})
		o.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// next blocks until there is something to do: to work for as long as the context
// says, to report that it rests, or, with no context, to end.
func (o *orders) next() (working context.Context, rested bool) {
	for {
		o.mu.Lock()
		working, changed := o.working, o.changed
		switch {
		case o.over:
			o.mu.Unlock()
			return nil, false
		case o.asked:
			o.asked = false
			o.mu.Unlock()
			return working, true
		case working.Err() == nil:
			o.mu.Unlock()
			return working, false
		}
		o.mu.Unlock()
		<-changed
	}
}
