//go:build linux

package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// desk is a register that answers what it is told to.
func desk(t *testing.T, answer func(Request) Reply) string {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() { // ends when the worker hangs up
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in, out := json.NewDecoder(conn), json.NewEncoder(conn)
		for {
			var q Request
			if in.Decode(&q) != nil || out.Encode(answer(q)) != nil {
				return
			}
		}
	}()
	return listener.Addr().String()
}

// toy is a lock that everybody gets.
type toy struct {
	locked chan string
	fail   error
	over   error // what a hold's Err says
}

func (t *toy) Lock(ctx context.Context, name string) (Hold, error) {
	select {
	case t.locked <- name:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if t.fail != nil {
		return nil, t.fail
	}
	return toyHold{t, time.Now().Add(time.Minute)}, nil
}

func (t *toy) Close() error { return nil }

type toyHold struct {
	*toy
	until time.Time
}

func (h toyHold) Until() time.Time             { return h.until }
func (h toyHold) Token() uint64                { return 7 }
func (h toyHold) Err() error                   { return h.over }
func (h toyHold) Unlock(context.Context) error { return errors.New("no\nrelease") }

// shift is a worker at work.
type shift struct {
	t      *testing.T
	orders *io.PipeWriter
	said   *bufio.Scanner
	log    string
	ended  chan error
}

func begin(t *testing.T, a Assignment, l Locker) *shift {
	t.Helper()
	stdin, orders := io.Pipe()
	stdout, reports := io.Pipe()
	a.Logs, a.Worker, a.Life, a.TTLMS = []string{filepath.Join(t.TempDir(), "log")}, 3, 2, 60_000
	if len(a.Names) == 0 {
		a.Names = []string{"a"}
	}
	s := &shift{t: t, orders: orders, said: bufio.NewScanner(stdout), log: a.Logs[0], ended: make(chan error, 1)}
	go func() {
		err := Work(stdin, reports, func(Assignment) (Locker, error) { return l, nil })
		reports.Close()
		s.ended <- err
	}()
	line, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	s.tell(string(line))
	s.hear(`{"ready":true}`)
	return s
}

func (s *shift) tell(line string) {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.orders, line); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shift) hear(want string) {
	s.t.Helper()
	if !s.said.Scan() || s.said.Text() != want {
		s.t.Fatalf("it says %q, want %q", s.said.Text(), want)
	}
}

// end ends the worker and returns the events of its first turn.
func (s *shift) end() []Event {
	s.t.Helper()
	s.orders.Close()
	for s.said.Scan() {
	}
	if err := <-s.ended; err != nil {
		s.t.Fatal(err)
	}
	var events []Event
	if err := ReadEvents(s.log, func(e Event) { events = append(events, e) }); err != nil {
		s.t.Fatal(err)
	}
	for i, e := range events {
		if i > 0 && (e.Kind == Call || e.T < events[i-1].T) {
			return events[:i]
		}
	}
	return events
}

func kindsOf(events []Event) []Kind {
	var ks []Kind
	for _, e := range events {
		ks = append(ks, e.Kind)
	}
	return ks
}

func TestWorker(t *testing.T) {
	l := &toy{locked: make(chan string)}
	var asked []Request
	s := begin(t, Assignment{Register: desk(t, func(q Request) Reply {
		asked = append(asked, q)
		return Reply{Open: "o", Guarded: "g", Stale: q.Op == OpWrite}
	})}, l)
	s.tell(`"go"`)
	<-l.locked
	s.tell(`"rest"`)
	for s.said.Scan() && s.said.Text() != `{"rested":true}` {
	}
	s.tell(`"go"`)
	<-l.locked // it works again
	events := s.end()
	want := []Kind{Call, Acquired, Reading, Read, Writing, Wrote, Releasing, Released}
	if got := kindsOf(events); !slices.Equal(got, want) {
		t.Fatalf("it wrote %v, want %v", got, want)
	}
	acquired, wrote, released := events[1], events[5], events[7]
	if acquired.Token != 7 || acquired.Until < acquired.T+int64(50*time.Second) || acquired.Until > acquired.T+int64(time.Minute) {
		t.Errorf("%+v", acquired)
	}
	if wrote.ID != "3.2.1.1" || !wrote.Stale || released.Err != "no release" {
		t.Errorf("%+v, %+v", wrote, released)
	}
	if q := asked[2]; q.Op != OpWrite || q.ID != "3.2.1.1" || q.Open != "o" || q.Guarded != "g" || q.Token != 7 || q.Worker != 3 {
		t.Errorf("it asked %+v", q)
	}
}

// Who knows that the lock is lost, or is told so, does not write.
func TestWorkerLost(t *testing.T) {
	for name, tt := range map[string]struct {
		over  error
		stale bool
	}{"knows": {over: errors.New("over")}, "is told": {stale: true}} {
		l := &toy{locked: make(chan string), over: tt.over}
		s := begin(t, Assignment{Register: desk(t, func(q Request) Reply {
			if q.Op != OpRead {
				t.Errorf("%s: it asked %+v", name, q)
			}
			return Reply{Stale: tt.stale}
		})}, l)
		s.tell(`"go"`)
		<-l.locked
		<-l.locked
		want := []Kind{Call, Acquired, Reading, Read, Lost, Releasing, Released}
		if got := kindsOf(s.end()); !slices.Equal(got, want) {
			t.Errorf("%s: it wrote %v, want %v", name, got, want)
		}
	}
}

// A probe leaves the registers alone.
func TestProbe(t *testing.T) {
	l := &toy{locked: make(chan string), fail: errors.New("none to be had")}
	s := begin(t, Assignment{Probe: true}, l)
	s.tell(`"go"`)
	<-l.locked
	<-l.locked
	events := s.end()
	if got := kindsOf(events); !slices.Equal(got, []Kind{Call, Fail}) || events[1].Err != "none to be had" {
		t.Errorf("it wrote %v", events)
	}
}

// taker is a toy that has more than locks of one name.
type taker struct {
	*toy
	took chan Want
}

func (t taker) Take(ctx context.Context, w Want) (Hold, error) {
	t.took <- w
	hold, err := t.Lock(ctx, w.Names[0])
	return slotHold{hold}, err
}

type slotHold struct{ Hold }

func (slotHold) Slot() int { return 2 }

// A worker writes down what it takes: all names of a set, the slot of a permit, and that it is a reader, who only reads.
func TestWorkerPrimitives(t *testing.T) {
	for primitive, want := range map[Primitive]struct {
		call, acquired []string
		kinds          []Kind
	}{
		Set: {[]string{"a", "b"}, []string{"a", "b"},
			[]Kind{Call, Acquired, Reading, Read, Reading, Read, Writing, Wrote, Writing, Wrote, Releasing, Released}},
		Shared:  {[]string{"a"}, []string{"a"}, []Kind{Call, Acquired, Reading, Read, Reading, Read, Releasing, Released}},
		Permits: {[]string{"a#0", "a#1", "a#2"}, []string{"a#2"}, []Kind{Call, Acquired, Reading, Read, Writing, Wrote, Releasing, Released}},
	} {
		l := taker{&toy{locked: make(chan string)}, make(chan Want, 100)}
		a := Assignment{Primitives: []Primitive{primitive}, Permits: 3, Names: []string{"a"}, Register: desk(t, func(q Request) Reply {
			if q.Shared != (primitive == Shared) {
				t.Errorf("%s: it asked %+v", primitive, q)
			}
			return Reply{}
		})}
		if primitive == Set {
			a.Names = []string{"a", "b"}
		}
		s := begin(t, a, l)
		s.tell(`"go"`)
		<-l.locked
		<-l.locked
		events := s.end()
		if w := <-l.took; w.Primitive != primitive {
			t.Errorf("it took %+v", w)
		}
		if got := kindsOf(events); !slices.Equal(got, want.kinds) {
			t.Errorf("%s: it wrote %v, want %v", primitive, got, want.kinds)
			continue
		}
		call, acquired := append([]string{events[0].Name}, events[0].With...), append([]string{events[1].Name}, events[1].With...)
		slices.Sort(call)
		slices.Sort(acquired)
		if !slices.Equal(call, want.call) || !slices.Equal(acquired, want.acquired) || events[1].Shared != (primitive == Shared) {
			t.Errorf("%s: %+v, %+v", primitive, events[0], events[1])
		}
	}
}
