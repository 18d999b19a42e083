package zookeeper

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/ensemble"
	"github.com/redlatch/redlatch/internal/vote"
)

// A session is known to last from what the leader is known to have heard, and no longer.
func TestSessionOutlastsLease(t *testing.T) {
	t.Parallel()
	const lasts = 20 * time.Second
	start := clock.System.Now()
	at := func(d time.Duration) clock.Instant { return start.Add(d) }
	s := &session{}
	if s.outlasts(start, time.Millisecond) {
		t.Error("it lasts before there is one")
	}
	s.touches.add(touch{sent: start, known: at(time.Millisecond)}, lasts)
	s.touches.add(touch{sent: at(8 * time.Second), known: at(13 * time.Second)}, lasts)
	for name, tt := range map[string]struct {
		at, ttl time.Duration
		want    bool
	}{
		"after the handshake":            {time.Second, 10 * time.Second, true},
		"before a heartbeat is known of": {12 * time.Second, 10 * time.Second, false},
		"a shorter lease":                {12 * time.Second, 7 * time.Second, true},
		"when it is known of":            {13 * time.Second, 10 * time.Second, true},
		"after a pause":                  {19 * time.Second, 10 * time.Second, false},
	} {
		if got := s.outlasts(at(tt.at), tt.ttl); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for i := range 10 * maxTouches {
		now := at(time.Duration(i) * time.Second)
		s.touches.add(touch{sent: now, known: now.Add(lasts / 3)}, lasts)
		if i > 7 && !s.outlasts(now, 10*time.Second) {
			t.Fatalf("after %d heartbeats it does not", i)
		}
	}
}

// Nothing is written that might end with the session too soon.
func TestNothingIsWrittenOnAStaleSession(t *testing.T) {
	t.Parallel()
	s := &store{session: &session{connected: true, prepared: true}} // with a way to no server
	w := &acquisition{store: s, request: vote.Acquire{Key: "name", ID: "id", TTL: time.Second}}
	if a, again := w.commit(t.Context(), contents{}, nil); a.Verdict != vote.Unavailable || again {
		t.Errorf("acquire: %v, %v", a, again)
	}
	if a := s.Extend(t.Context(), vote.Extend{Key: "name", ID: "id", TTL: time.Second}); a.Verdict != vote.Unavailable {
		t.Errorf("extend: %v", a)
	}
}

func TestContents(t *testing.T) {
	t.Parallel()
	p := placeOf("/root", "a/b ü.")
	if key, ok := keyOf("/root", p.lease("x")); !ok || key != "a/b ü." {
		t.Errorf("the key is %q, %v", key, ok)
	}
	if _, ok := keyOf("/root", "/root2/lock:x"); ok {
		t.Error("another root's")
	}
	cut := func(path string) string { return path[len(string(p))+1:] }
	c := parseContents([]string{
		heldName, cut(p.lease("AB.1.me:2/3")), "theirs", "wait:x", "wait:x:y", "wait:%zz:1",
		cut(p.newWait("c/1")) + "-2147483648", cut(p.newWait("b:2")) + "2147483647", cut(p.newWait("a")) + "2147483646",
	})
	var names []string
	for _, w := range c.waiters {
		names = append(names, w.name)
	}
	if c.holder != "AB.1.me:2/3" || !slices.Equal(names, []string{"a", "b:2", "c/1"}) {
		t.Errorf("holder %q, waiters %q", c.holder, names)
	}
	if c.index("b:2") != 1 || c.index("b") != -1 {
		t.Error("a waiter is not found by its whole name")
	}
}

// Servers give one number to many once they have counted to 2^31 − 1. Then all clients see one order, whichever the server
// names them in.
func TestWaitersOfOneNumber(t *testing.T) {
	t.Parallel()
	children := []string{"wait:b:2147483647", "wait:a:2147483647", "wait:c:-2147483648", "wait:d:2147483646"}
	want := parseContents(children).waiters
	slices.Reverse(children)
	if got := parseContents(children).waiters; !slices.Equal(got, want) || got[0].name != "d" || got[3].name != "c" {
		t.Errorf("%v, and %v", got, want)
	}
}

func TestTokensGrow(t *testing.T) {
	t.Parallel()
	s := &store{base: 1 << 50}
	last := uint64(0)
	for _, zxid := range []int64{1, 2, 3, 1 << 32, 1<<32 + 1, 1 << 40} {
		first, err := s.token(zxid, 0)
		if err != nil || first <= last {
			t.Errorf("%#x: the token %d after %d, %v", zxid, first, last, err)
		}
		if last, err = s.token(zxid, 7); err != nil || last != first+7 {
			t.Errorf("%#x: %d, %v", zxid, last, err)
		}
	}
	if token, err := s.token(1, 8); err == nil {
		t.Errorf("the ninth of a block has the token %d, as the first of the next", token)
	}
	for _, zxid := range []int64{0, -1, 1 << 52, 1<<63 - 1} {
		if token, err := s.token(zxid, 0); err == nil {
			t.Errorf("%#x has the token %d", zxid, token)
		}
	}
}

// A place that is dropped, and a lease at each of its versions, are timed anew.
func TestObservations(t *testing.T) {
	t.Parallel()
	o := newObservations()
	if left := o.lease("key", leaseSeen{holder: "a", version: 1, ttl: 20 * time.Millisecond}); left <= 0 {
		t.Errorf("%v left of what was just seen", left)
	}
	time.Sleep(30 * time.Millisecond)
	if left := o.lease("key", leaseSeen{holder: "a", version: 1, ttl: 20 * time.Millisecond}); left > 0 {
		t.Errorf("%v left of what was not extended", left)
	}
	if left := o.lease("key", leaseSeen{holder: "a", version: 2, ttl: time.Hour}); left <= 0 {
		t.Errorf("%v left of what was extended", left)
	}
	if left := o.lease("key", leaseSeen{holder: "b", version: 2, ttl: time.Hour}); left <= 0 {
		t.Errorf("%v left of another's", left)
	}
	time.Sleep(time.Millisecond)
	if left := o.lease("key", leaseSeen{holder: "b", version: 2, moves: 1, ttl: time.Hour}); left < time.Hour {
		t.Errorf("%v left of what was moved to another session, at the same version", left)
	}
}

// Requests that a server does not answer, of those who hold nothing and of those who release, keep nobody from
// extending, nor the heartbeat that finds the server hung; and nor do extensions.
func TestUnansweredRequests(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	connecting := func(string, string, time.Duration) (net.Conn, error) {
		<-over
		return nil, net.ErrClosed
	}
	conn, ended, err := zk.Connect([]string{"127.0.0.1:1"}, time.Minute, zk.WithDialer(connecting), zk.WithLogger(debugLog{slog.New(slog.DiscardHandler)}))
	if err != nil {
		t.Fatal(err)
	}
	s := &store{session: &session{
		asked: 10 * time.Second, conn: conn, ended: ended, last: make(map[string]chan struct{}),
		asks: make(ensemble.Slots, ensemble.MaxInFlight), releases: make(ensemble.Slots, ensemble.MaxInFlight), holds: make(ensemble.Slots, maxHolds),
	}}
	s.leases, s.observed = ensemble.NewLeases(), newObservations()
	s.life, s.end = context.WithCancel(context.Background())
	defer s.close(false)
	defer close(over)
	now := clock.System.Now()
	s.connected, s.prepared = true, true
	s.touches.add(touch{sent: now, known: now}, time.Hour)
	abandoned, cancel := context.WithCancel(t.Context())
	cancel()
	if p := s.Enqueue(abandoned, vote.Enqueue{Key: "name", Ticket: vote.Ticket{Waiter: "w"}}); p.Verdict != vote.Unavailable {
		t.Errorf("no place was asked for: %+v", p)
	}
	if a := s.Acquire(abandoned, vote.Acquire{Key: "name", ID: "id", TTL: time.Second}); a.Verdict != vote.Unavailable {
		t.Errorf("no lock was asked for: %+v", a)
	}
	for i := range 3000 {
		id := strconv.Itoa(i)
		s.Acquire(abandoned, vote.Acquire{Key: "name", ID: id, TTL: time.Second})
		s.Release(abandoned, vote.Release{Key: "name", ID: id})
	}
	if a := s.Acquire(abandoned, vote.Acquire{Key: "name", ID: "id", TTL: time.Second}); a.Verdict != vote.NotSent {
		t.Fatalf("no bound: %+v", a)
	}
	for i := range maxHolds + 1 {
		a := s.Extend(abandoned, vote.Extend{Key: "name", ID: strconv.Itoa(i), TTL: time.Second})
		if want := i < maxHolds; (a.Verdict == vote.Unknown) != want {
			t.Fatalf("extension %d: %+v", i, a)
		}
	}
	if s.heartbeat(now) {
		t.Error("the server is not found hung")
	}
}

// A connection on which a server says that the session has ended is closed before there is another.
func TestConnectionOfAnEndedSessionIsClosed(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{}, 100)
	dial := func(context.Context, string) (net.Conn, error) {
		conn, server := net.Pipe()
		go func() {
			handshake := make([]byte, 256)
			server.Read(handshake)
			server.Write(append([]byte{0, 0, 0, 36}, make([]byte, 36)...)) // of the session 0, which is none
			server.Read(handshake)
			closed <- struct{}{}
		}()
		return conn, nil
	}
	servers := Ensemble{Servers: []string{"127.0.0.1:1"}, Dial: dial}
	s := newSession(time.Minute, servers, nil, debugLog{slog.New(slog.DiscardHandler)}, func(string) {}, func() error { return nil })
	defer s.close(true)
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Error("it is still open")
	}
}

// A server that does not answer is waited for until ctx ends, also where that has no deadline.
func TestExamineEndsWithItsContext(t *testing.T) {
	t.Parallel()
	conn, server := net.Pipe()
	defer server.Close()
	x := &examination{dial: func(context.Context, string) (net.Conn, error) { return conn, nil }}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	asked := make(chan error, 1)
	go func() { asked <- x.ask(ctx, "server").Err }()
	select {
	case err := <-asked:
		if err == nil {
			t.Error("it has answered")
		}
	case <-time.After(time.Minute):
		t.Error("it is still asked")
	}
}
