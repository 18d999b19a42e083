package tortured

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
	shortHold     = 6 * time.Millisecond
	hastyShare    = 0.1 // acquisitions that are given up soon, in the middle of a try
	hastyPatience = 30 * time.Millisecond
	longestPause  = 20 * time.Millisecond
	patienceTTLs  = 4   // how long others are waited for, in TTLs
	briefShare    = 0.5 // acquisitions that wait for less than a quarter of a TTL, or all would wait for one lock that is stuck
)

type worker struct {
	Assignment
	reports *json.Encoder
	log     *log
	locker  Locker
	at      *register
	rand    *rand.Rand
	writes  int
	orders  orders
}

func (w *worker) work(lines *bufio.Reader, open func(Assignment) (Locker, error)) (err error) {
	w.rand = rand.New(rand.NewPCG(w.Seed, uint64(w.Worker)<<32|uint64(w.Life)))
	if w.log, err = openLog(w.Log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.log.close()) }()
	if !w.Probe {
		if w.at, err = dialRegister(w.Register); err != nil {
			return err
		}
		defer w.at.conn.Close()
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
		if working == nil {
			return w.log.err
		}
		if rested {
			if err := w.reports.Encode(Report{Rested: true}); err != nil {
				return err
			}
			continue
		}
		if err := w.turn(working); err != nil {
			return err
		}
		if w.log.err != nil {
			return w.log.err
		}
		pause := ProbePause
		if !w.Probe {
			pause = time.Duration(w.rand.Int64N(int64(longestPause)))
		}
		sleep(working, pause)
	}
}

// turn takes one lock, does what it is for, and lets it go. ctx ends the waiting.
func (w *worker) turn(ctx context.Context) error {
	name := w.Names[w.rand.IntN(len(w.Names))]
	patience := patienceTTLs * w.TTL()
	switch luck := w.rand.Float64(); {
	case w.Probe:
		patience = ProbePatience
	case luck < hastyShare:
		patience = time.Duration(w.rand.Int64N(int64(hastyPatience)))
	case luck < hastyShare+briefShare:
		patience = time.Duration(w.rand.Int64N(int64(w.TTL() / 4)))
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	w.log.write(Event{Kind: Call, Name: name})
	hold, err := w.locker.Lock(waiting, name)
	cancel()
	if err != nil {
		w.log.write(Event{Kind: Fail, Name: name, Err: brief(err)})
		return nil
	}
	until := monotonic(hold.Until())
	w.log.write(Event{Kind: Acquired, Name: name, Until: until, Token: hold.Token()})
	if !w.Probe {
		err = w.visit(ctx, name, hold, until)
	}
	// Before it begins: from here on the lock is not relied on.
	w.log.write(Event{Kind: Releasing, Name: name})
	released := Event{Kind: Released, Name: name}
	if err := hold.Unlock(context.WithoutCancel(ctx)); err != nil {
		released.Err = brief(err)
	}
	w.log.write(released)
	return err
}

// visit changes the registers under the lock, as a program would that looks
// whether it holds the lock before it writes, and knows no better.
func (w *worker) visit(ctx context.Context, name string, hold Hold, until int64) error {
	w.log.write(Event{Kind: Reading, Name: name, Token: hold.Token()})
	request := Request{Worker: w.Worker, Op: OpRead, Name: name, Token: hold.Token()}
	read, err := w.at.ask(request)
	if err != nil {
		return err
	}
	w.log.write(Event{Kind: Read, Name: name, Token: hold.Token(), Open: read.Open, Guarded: read.Guarded, Stale: read.Stale})
	if read.Stale || !w.labour(ctx, name, hold, until) {
		w.log.write(Event{Kind: Lost, Name: name})
		return nil
	}
	request.Op = OpPrepare
	if _, err := w.at.ask(request); err != nil {
		return err
	}
	w.writes++
	request.Op, request.ID = OpWrite, fmt.Sprintf("%d.%d.%d", w.Worker, w.Life, w.writes)
	request.Open, request.Guarded = read.Open, read.Guarded
	w.log.write(Event{Kind: Writing, Name: name, Token: hold.Token(), ID: request.ID})
	wrote, err := w.at.ask(request)
	if err != nil {
		return err
	}
	w.log.write(Event{Kind: Wrote, Name: name, Token: hold.Token(), ID: request.ID, Stale: wrote.Stale})
	return nil
}

// labour takes the time that the work under the lock takes, and reports whether
// the lock is held at its end. An order to rest cuts it short.
func (w *worker) labour(ctx context.Context, name string, hold Hold, until int64) bool {
	span := time.Duration(w.rand.Int64N(int64(shortHold)))
	if w.rand.Float64() < w.LongHolds {
		span = w.TTL()/2 + time.Duration(w.rand.Int64N(int64(w.TTL())))
	}
	extender, _ := hold.(Extender)
	renewed := time.Now()
	for end := renewed.Add(span); ; {
		if hold.Err() != nil {
			return false
		}
		if now := monotonic(hold.Until()); now > until+int64(time.Millisecond) {
			until = now
			w.log.write(Event{Kind: Extended, Name: name, Until: until})
		}
		left := time.Until(end)
		if left <= 0 || ctx.Err() != nil {
			return true
		}
		if extender != nil && time.Since(renewed) > w.TTL()/3 {
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
