package line

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// travel is how long a message to a node takes, and its answer. All processes
// of a test wait timeout for one step.
const (
	travel  = time.Millisecond
	timeout = 50 * time.Millisecond
)

// keeper is a node of a bubble that keeps the line for one record. Its steps are
// those of the scripts.
type keeper struct {
	name string

	mu sync.Mutex // guards what follows
	// down: it cannot be reached. slow is what its answers take in addition.
	down bool
	slow time.Duration
	// mute: its calls are lost. deaf: it can call nobody.
	mute, deaf bool

	holder  string
	expires time.Time // zero for never
	line    map[string]uint64
	beats   map[string]time.Time
	ticket  uint64
	called  string
	until   time.Time
	// from has left its other records to whoever is called.
	from string
	// forgone is what processes had no use for; the arbiter keeps the list.
	forgone []string
	// hear are the processes that it can call, and watching those that hear of
	// the record's end.
	hear     map[string]*Line
	watching []*Line

	stands int
}

func newKeeper(i int) *keeper {
	return &keeper{name: fmt.Sprint("n", i), line: make(map[string]uint64), beats: make(map[string]time.Time), hear: make(map[string]*Line)}
}

// endpoint is a process's way to a node.
type endpoint struct {
	*keeper
	index int
	line  *Line
}

var errDown = errors.New("down")

func (e endpoint) Name() string { return e.name }

// answer carries a step to the node and back.
func (e endpoint) answer(ctx context.Context, step func()) (vote.Verdict, error) {
	e.mu.Lock()
	down, slow := e.down, e.slow
	e.mu.Unlock()
	if down {
		return vote.NotSent, errDown
	}
	done := make(chan struct{})
	time.AfterFunc(travel, func() {
		e.mu.Lock()
		step()
		e.mu.Unlock()
		time.AfterFunc(travel+slow, func() { close(done) })
	})
	select {
	case <-done:
		return vote.Held, nil
	case <-ctx.Done():
		return vote.Unknown, ctx.Err()
	}
}

func (e endpoint) Stand(ctx context.Context, c vote.Claim, watch bool) (s vote.Standing) {
	var found vote.Standing
	e.mu.Lock()
	hears := !e.deaf
	e.mu.Unlock()
	waiter := strings.TrimPrefix(c.Place.Waiter, "-")
	if !hears {
		waiter = "-" + waiter
	}
	verdict, err := e.answer(ctx, func() {
		e.stands++
		if hears {
			e.hear[process(waiter)] = e.line
		}
		if watch {
			e.watching = append(e.watching, e.line)
		}
		found = e.stand(waiter, c.Place.Ticket)
	})
	if verdict == vote.Held {
		s = found
		s.Watched = watch
	}
	s.Verdict, s.Err, s.Hears, s.Place.Waiter = verdict, err, hears, waiter
	return s
}

func (e endpoint) Leave(ctx context.Context, _, waiter string) {
	e.answer(ctx, func() { e.leave(waiter) })
}

func (e endpoint) Waits(ctx context.Context, _ string) (somebody bool, err error) {
	_, err = e.answer(ctx, func() { somebody = len(e.keeper.line) > 0 })
	return somebody, err
}

func process(waiter string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(waiter, "-"), "/")
	return name
}

// present expires the record. The caller holds k.mu, as for what follows.
func (k *keeper) present() string {
	if !k.expires.IsZero() && !time.Now().Before(k.expires) {
		k.holder, k.expires = "", time.Time{}
	}
	return k.holder
}

func (k *keeper) stand(waiter string, ticket uint64) (s vote.Standing) {
	now := time.Now()
	for other, lapses := range k.beats {
		if lapses.Before(now) {
			k.remove(other)
		}
	}
	if ticket == 0 {
		if ticket = k.line[waiter]; ticket == 0 {
			k.ticket++
			ticket = k.ticket
		}
	}
	k.ticket = max(k.ticket, ticket)
	k.line[waiter], k.beats[waiter] = ticket, now.Add(script.Patience)
	s.Place.Ticket = ticket
	if s.Holder = k.present(); s.Holder != "" {
		s.Ahead = slices.Index(k.order(), waiter)
		s.Left = -1
		if !k.expires.IsZero() {
			s.Left = time.Until(k.expires)
		}
		return s
	}
	k.call(waiter)
	if s.Ahead = slices.Index(k.order(), waiter); k.called != waiter {
		s.Ahead = max(s.Ahead, 1)
	}
	s.Left, s.From = time.Until(k.until), k.from
	return s
}

func (k *keeper) order() []string {
	var all []string
	for w := range k.line {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b string) int { return int(k.line[a]) - int(k.line[b]) })
	return all
}

func (k *keeper) remove(waiter string) {
	delete(k.line, waiter)
	delete(k.beats, waiter)
}

func (k *keeper) leave(waiter string) {
	k.remove(waiter)
	if k.present() == "" {
		k.call("")
	}
}

func (k *keeper) call(self string) {
	if _, there := k.line[k.called]; there && !k.until.Before(time.Now()) {
		if self == "" {
			k.send(k.called)
		}
		return
	}
	k.called = ""
	if order := k.order(); len(order) > 0 {
		k.called, k.until = order[0], time.Now().Add(script.Grace)
		k.beats[k.called] = k.until
		if k.called != self {
			k.send(k.called)
		}
	}
}

func (k *keeper) send(waiter string) {
	to := k.hear[process(waiter)]
	if k.mute || to == nil || strings.HasPrefix(waiter, "-") {
		return
	}
	index := to.indexOf(k.name)
	call := vote.Call{Waiter: waiter, Record: record, From: k.from}
	time.AfterFunc(travel, func() { to.Called(index, call) })
}

// release ends the record, and calls the first in line unless the holder was of
// another library.
func (k *keeper) release(foreign bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.holder, k.expires = "", time.Time{}
	watching := k.watching
	k.watching = nil
	for _, l := range watching {
		time.AfterFunc(travel, func() { l.Changed(record) })
	}
	if !foreign {
		k.call("")
	}
}

// take makes holder the record, for an attempt of waiter; another who was called
// comes first.
func (k *keeper) take(holder, waiter string, ttl time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.present() != "" || k.called != "" && k.called != waiter && !k.until.Before(time.Now()) {
		return false
	}
	k.holder, k.expires = holder, time.Time{}
	if ttl > 0 {
		k.expires = time.Now().Add(ttl)
	}
	k.remove(waiter)
	k.called, k.from = "", ""
	return true
}

func (k *keeper) set(change func(k *keeper)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(k)
}

func (k *keeper) asked() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stands
}

func (l *Line) indexOf(name string) int {
	return slices.IndexFunc(l.keepers, func(k Keeper) bool { return k.Name() == name })
}

const record = "x"

var claim = vote.Claim{Record: record}

// foreign holders of these tests have names that begin so.
func isForeign(holder string) bool { return strings.HasPrefix(holder, "theirs") }

// newLine returns a process's line over the nodes.
func newLine(t *testing.T, name string, nodes []*keeper, draw func(time.Duration) time.Duration) *Line {
	t.Helper()
	if draw == nil {
		draw = func(d time.Duration) time.Duration { return d / 2 }
	}
	var l *Line
	l = New(Options{Waiter: name, Timeout: timeout, Foreign: isForeign, Draw: draw, Forgo: func(record, from string) {
		nodes[l.Arbiter(record)].set(func(k *keeper) { k.forgone = append(k.forgone, record+" of "+from) })
	}})
	var keepers []Keeper
	for i, k := range nodes {
		keepers = append(keepers, endpoint{k, i, l})
	}
	l.Use(keepers)
	t.Cleanup(l.Close)
	return l
}

func newKeepers(n int) []*keeper {
	nodes := make([]*keeper, n)
	for i := range nodes {
		nodes[i] = newKeeper(i)
	}
	return nodes
}

// arbiter returns the node that is asked first.
func arbiter(t *testing.T, nodes []*keeper) *keeper {
	t.Helper()
	return nodes[newLine(t, "scout", nodes, nil).order(record)[0]]
}

func quiet(vote.Standing) {}

// awaiting starts an Await, and returns where its outcome will be.
func awaiting(ctx context.Context, p *Place, rest time.Duration) <-chan error {
	out := make(chan error, 1)
	go func() { out <- p.Await(ctx, rest, quiet) }()
	return out
}

// settle lets what is under way end.
func settle() { time.Sleep(10 * travel); synctest.Wait() }

func pending(t *testing.T, out <-chan error) {
	t.Helper()
	select {
	case err := <-out:
		t.Fatalf("its turn has come: %v", err)
	default:
	}
}
