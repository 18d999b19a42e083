//go:build unix

package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch"
)

// A turn at the record takes a few milliseconds, so that there is time for an overlap to
// happen. The pause after it gives the other workers a chance to take the lock.
const (
	longestWork  = 4 * time.Millisecond
	longestPause = 4 * time.Millisecond
)

// Work is the process of one worker. It reads its assignment from orders, and starts to work
// at the next line. It releases its lock and returns at the end of orders: the demo has closed
// them, or has ended. It writes each report to reports as one JSON line.
func Work(orders io.Reader, reports io.Writer) error {
	lines := bufio.NewReader(orders)
	var a assignment
	if err := readLine(lines, &a); err != nil {
		return fmt.Errorf("reading the assignment: %w", err)
	}
	w := &worker{assignment: a, record: record{dir: a.Dir}, reports: json.NewEncoder(reports)}
	if err := w.work(lines); err != nil {
		return errors.Join(err, w.reports.Encode(report{Failed: err.Error()}))
	}
	return nil
}

type worker struct {
	assignment
	record  record
	client  *redlatch.Client
	reports *json.Encoder
}

func (w *worker) work(orders *bufio.Reader) (err error) {
	w.client, err = open(w.Engine, w.Nodes, w.name())
	if err != nil {
		return err
	}
	defer func() {
		// ErrNoQuorum is no failure: the nodes that are out now have not confirmed the last release.
		if closeErr := w.client.Close(); !errors.Is(closeErr, redlatch.ErrNoQuorum) {
			err = errors.Join(err, closeErr)
		}
	}()
	if err := w.reports.Encode(report{Ready: true}); err != nil {
		return err
	}
	if _, err := orders.ReadString('\n'); err != nil {
		return nil // the demo ended before the race began
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// The goroutine ends at the end of orders, or else with the process.
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, orders)
	}()
	for {
		if err := w.turn(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		rest(ctx, rand.N(longestPause))
	}
}

func (w *worker) name() string { return fmt.Sprintf("worker %d", w.Worker) }

// turn waits for the lock, updates the record once and writes a report. The end of ctx ends the
// wait.
func (w *worker) turn(ctx context.Context) error {
	began := time.Now()
	r := report{Turn: began.UnixNano()}
	if w.NoLock {
		if err := w.visit(ctx, nil, &r); err != nil {
			return err
		}
		return w.reports.Encode(r)
	}
	lock, err := w.client.Lock(ctx, recordLock)
	if err != nil {
		if ctx.Err() != nil {
			return w.reports.Encode(report{Unserved: time.Since(began)})
		}
		return err
	}
	now := time.Now()
	r.Locked, r.Turn, r.Wait = true, now.UnixNano(), now.Sub(began)
	err = w.visit(lock.Context(), lock, &r)
	switch unlockErr := lock.Unlock(ctx); {
	case errors.Is(unlockErr, redlatch.ErrLost):
		// visit has already noted in the report whether the lock was lost before the update.
	case unlockErr != nil:
		r.Unreleased = true
	}
	if err != nil {
		return err
	}
	return w.reports.Encode(r)
}

// visit is the critical section, which only one worker may be in at a time. lock is nil with
// NoLock. ctx ends when the lock is lost, and cuts the work short.
func (w *worker) visit(ctx context.Context, lock *redlatch.Lock, r *report) (err error) {
	other, err := w.record.enter(w.Worker)
	switch {
	case err != nil:
		return err
	case other != "":
		r.Overlap = fmt.Sprintf("%s found %s at the record", w.name(), other)
	default:
		defer func() { err = errors.Join(err, w.record.leave()) }()
	}
	count, last, err := w.record.read()
	if err != nil {
		r.Garbled = fmt.Sprintf("%s: the record: %v", w.name(), err)
		return nil
	}
	rest(ctx, longestWork/4+rand.N(longestWork))
	var token uint64
	if lock != nil {
		if lock.Err() != nil {
			r.Lost = true
			return nil
		}
		token = lock.Token()
		if token <= last {
			r.Disorder = fmt.Sprintf("%s has token %d, an earlier turn had %d", w.name(), token, last)
		}
	}
	r.Updated = true
	return w.record.write(count+1, token)
}

// rest waits for d, or until ctx is done.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// readLine reads one line and decodes it from JSON.
func readLine(r *bufio.Reader, v any) error {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}
