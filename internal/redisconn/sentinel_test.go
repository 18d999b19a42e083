package redisconn

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redistest"
)

// fakeSentinel names the address that is stored, none for "", and does not answer at all while
// it is silent.
type fakeSentinel struct {
	*redistest.Fake
	id    string
	names atomic.Pointer[string]
}

func newFakeSentinel(t *testing.T, id, names string) *fakeSentinel {
	t.Helper()
	f := &fakeSentinel{id: id}
	f.names.Store(&names)
	f.Fake = redistest.NewFake(t, "", func(c redistest.Command) string {
		switch {
		case c.Name() == "HELLO":
			return redistest.Helloed
		case c.Name() != "SENTINEL":
			return "+OK\r\n"
		case c.Args[1] == "MYID" && f.id == "":
			return "-ERR Unknown sentinel subcommand 'MYID'\r\n"
		case c.Args[1] == "MYID":
			return bulk(f.id)
		}
		host, port, err := net.SplitHostPort(*f.names.Load())
		if err != nil {
			return "*-1\r\n"
		}
		return "*2\r\n" + bulk(host) + bulk(port)
	})
	return f
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

// watchedBy returns a connection to the master that the Sentinels at these addresses name.
func watchedBy(t *testing.T, addresses ...string) *Conn {
	t.Helper()
	return open(t, Options{Network: "tcp", Address: addresses[0], More: addresses[1:], Master: "main"})
}

// awaitDo sends PINGs until one is answered, or, for the words, not sent with an error that has
// them.
func awaitDo(t *testing.T, c *Conn, words ...string) {
	t.Helper()
	ctx := within(t, patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		_, err := c.Do(ctx, "PING")
		switch {
		case err == nil && len(words) == 0:
			return
		case errors.Is(err, driver.ErrNotSent) && len(words) > 0 && hasAll(err.Error(), words):
			return
		case ctx.Err() != nil:
			t.Fatalf("the last answer: %v, want %q", err, words)
		}
	}
}

func hasAll(text string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// Nothing is sent to a master that no majority of the configured Sentinels names.
func TestSentinelsWithoutMajority(t *testing.T) {
	t.Parallel()
	master, other := redistest.New(t), redistest.New(t)
	const nobody = "127.0.0.1:1" // refuses connections
	for _, c := range []struct {
		name      string
		addresses []string
		words     []string // none where there is a majority
	}{
		{"1 of 1", []string{newFakeSentinel(t, "a", master.Addr()).Addr()}, nil},
		{"1 of 2, 1 down", []string{newFakeSentinel(t, "a", master.Addr()).Addr(), nobody}, []string{"2 of 2 Sentinels", "1 of 2 answered", "names " + master.Addr(), nobody + ": "}},
		{"2 of 3, 1 down", []string{nobody, newFakeSentinel(t, "a", master.Addr()).Addr(), newFakeSentinel(t, "b", master.Addr()).Addr()}, nil},
		{"1 of 3, 2 down", []string{nobody, newFakeSentinel(t, "a", master.Addr()).Addr(), "127.0.0.1:2"}, []string{"2 of 3 Sentinels", "1 of 3 answered"}},
		{"2 disagree, 1 down", []string{nobody, newFakeSentinel(t, "a", master.Addr()).Addr(), newFakeSentinel(t, "b", other.Addr()).Addr()},
			[]string{"2 of 3 answered", "names " + master.Addr(), "names " + other.Addr()}},
		{"1 under 2 addresses", []string{nobody, newFakeSentinel(t, "a", master.Addr()).Addr(), newFakeSentinel(t, "a", master.Addr()).Addr()}, []string{"the same Sentinel as"}},
		{"2 that tell no id", []string{nobody, newFakeSentinel(t, "", master.Addr()).Addr(), newFakeSentinel(t, "", master.Addr()).Addr()}, nil},
		{"2 of 5 know none", []string{newFakeSentinel(t, "a", master.Addr()).Addr(), newFakeSentinel(t, "b", master.Addr()).Addr(),
			newFakeSentinel(t, "c", "").Addr(), newFakeSentinel(t, "d", "").Addr(), nobody}, []string{"3 of 5 Sentinels", "4 of 5 answered", "watches no master"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			awaitDo(t, watchedBy(t, c.addresses...), c.words...)
		})
	}
}

// A connection that takes long to make is not used when the Sentinels name another master meanwhile.
func TestMasterIsReplacedDuringTheDial(t *testing.T) {
	t.Parallel()
	former, next := redistest.New(t).Addr(), redistest.New(t).Addr()
	sentinel := newFakeSentinel(t, "a", former)
	c := watchedBy(t, sentinel.Addr())
	awaitDo(t, c)
	slow := &net.Dialer{Control: func(_, _ string, _ syscall.RawConn) error {
		sentinel.names.Store(&next)
		for c.sentinels.replaced(former) == nil {
			<-time.After(time.Millisecond)
		}
		return nil
	}}
	w, err := c.dial(t.Context(), c.options, "", slow, nil)
	if w != nil || err == nil || !hasAll(err.Error(), []string{former, next}) {
		t.Errorf("a connection to the former master: %v, %v", w != nil, err)
	}
	stays := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.ContainsFunc(c.present, func(w *watched) bool { return w.address == former })
	}
	for deadline := time.Now().Add(patience); stays(); time.Sleep(time.Millisecond) { // another goroutine breaks it
		if time.Now().After(deadline) {
			t.Fatal("the connection to the former master stays")
		}
	}
}

// A Sentinel further away than a majority is connected to, too.
func TestDistantSentinel(t *testing.T) {
	t.Parallel()
	master := redistest.New(t, redistest.Options{TLS: true})
	var addresses []string
	for i := range 3 {
		proxy := redistest.NewProxy(t, redistest.NewSentinel(t, "main", master, 2).Addr())
		if i == 2 {
			proxy.Delay(redistest.Both, 100*time.Millisecond, 0)
		}
		addresses = append(addresses, proxy.Addr())
	}
	tls := master.TLSConfig()
	tls.ServerName = ""
	c := open(t, Options{Network: "tcp", Address: addresses[0], More: addresses[1:], Master: "main", TLS: tls})
	awaitDo(t, c)
	for deadline := time.Now().Add(patience); !c.sentinels.conns[2].answered.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the distant one has never been connected to")
		}
	}
}

// Close does not wait for Sentinels that hang, however many.
func TestCloseWhileSentinelsHang(t *testing.T) {
	t.Parallel()
	master := redistest.New(t)
	var proxies []*redistest.Proxy
	var addresses []string
	for i := range 9 {
		p := redistest.NewProxy(t, newFakeSentinel(t, fmt.Sprint(i), master.Addr()).Addr())
		proxies, addresses = append(proxies, p), append(addresses, p.Addr())
	}
	hang := func(on bool) {
		for _, p := range proxies {
			p.BlackHole(redistest.Both, on)
		}
	}
	promptly(t, "Close", func() {
		c := watchedBy(t, addresses...)
		awaitDo(t, c)
		for _, s := range c.sentinels.conns {
			must(t, s, "PING")
		}
		defer hang(false)
		hang(true)
		c.Close()
	})
}

// A connection is given up when the majority that named its server is gone, and the one that
// still names it is no reason to stay. It is made again when there is a majority again.
func TestMajorityOfSentinelsIsLost(t *testing.T) {
	t.Parallel()
	master, other := redistest.New(t), redistest.New(t)
	sentinels := []*fakeSentinel{newFakeSentinel(t, "a", master.Addr()), newFakeSentinel(t, "b", master.Addr()), newFakeSentinel(t, "c", master.Addr())}
	proxies := make([]*redistest.Proxy, len(sentinels))
	for i, s := range sentinels {
		proxies[i] = redistest.NewProxy(t, s.Addr())
	}
	c := watchedBy(t, proxies[0].Addr(), proxies[1].Addr(), proxies[2].Addr())
	awaitDo(t, c)

	for _, p := range proxies[1:] {
		p.HoldBack(redistest.Replies, true)
	}
	awaitDo(t, c, "1 of 3 answered", proxies[0].Addr()+" names "+master.Addr(), proxies[1].Addr()+": no answer")
	proxies[1].HoldBack(redistest.Replies, false)
	awaitDo(t, c)

	// They disagree: one has heard of another master, one of none, one is still silent.
	there, none := other.Addr(), ""
	sentinels[1].names.Store(&there)
	sentinels[2].names.Store(&none)
	proxies[2].HoldBack(redistest.Replies, false)
	awaitDo(t, c, "3 of 3 answered", proxies[1].Addr()+" names "+there, "watches no master")
	sentinels[2].names.Store(&there)
	awaitDo(t, c)
	must(t, c, "SET", "k", "v")
	if v, err := other.Do("GET", "k"); err != nil || v != "v" {
		t.Errorf("the master of the majority has %v, %v", v, err)
	}
}

// One Sentinel names another master, which is there: nobody leaves the one that the others name.
func TestOneSentinelNamesAnotherMaster(t *testing.T) {
	t.Parallel()
	master, other := redistest.New(t), redistest.New(t)
	a, b, behind := newFakeSentinel(t, "a", master.Addr()), newFakeSentinel(t, "b", master.Addr()), newFakeSentinel(t, "c", master.Addr())
	// The others are as slow as to be heard after it.
	slow := []*redistest.Proxy{redistest.NewProxy(t, a.Addr()), redistest.NewProxy(t, b.Addr())}
	c := watchedBy(t, behind.Addr(), slow[0].Addr(), slow[1].Addr())
	awaitDo(t, c)
	for _, p := range slow {
		p.Delay(redistest.Replies, sentinelPause/10, 0)
	}
	there := other.Addr()
	behind.names.Store(&there)
	stays := func() bool {
		awaitDo(t, c)
		connection, checks := c.Connections(), slow[0].Stats().Seen["SENTINEL"]
		err := slow[0].Await(within(t, patience), func(s redistest.Stats) bool { return s.Seen["SENTINEL"] >= checks+2*(failedChecks+2) })
		if err != nil {
			t.Fatal(err)
		}
		return c.Connections() == connection
	}
	for try := 1; !stays(); try++ { // the Sentinels of a busy machine may be late
		if try == 10 {
			t.Fatal("the connection is given up each time")
		}
	}

	// One is down besides: then it is not known who is behind.
	slow[1].HoldBack(redistest.Replies, true)
	awaitDo(t, c, "2 of 3 answered")
	slow[1].HoldBack(redistest.Replies, false)
	awaitDo(t, c)
	must(t, c, "SET", "k", "v")
	if v, err := master.Do("GET", "k"); err != nil || v != "v" {
		t.Errorf("the master of the majority has %v, %v", v, err)
	}
}

// What a majority said holds for masterStands, by the clock and not by the number of checks: a
// process that was stopped made none.
func TestMasterStands(t *testing.T) {
	t.Parallel()
	s := &sentinels{master: "main"}
	if err := s.recent(); err != nil {
		t.Errorf("before anybody was asked: %v", err)
	}
	now := clock.System.Now()
	s.confirm(now.Add(-2*masterStands), "")
	if err := s.recent(); err == nil || !strings.Contains(err.Error(), "last asked") {
		t.Errorf("long ago: %v", err)
	}
	s.confirm(now.Add(time.Hour), "") // for as long as this test takes
	s.confirm(now, "")                // which was asked before
	if err := s.recent(); err != nil {
		t.Errorf("just now: %v", err)
	}
	missed := errors.New("missed")
	for i := range failedChecks {
		if err := s.recent(); err != nil {
			t.Errorf("after %d checks without a majority: %v", i, err)
		}
		if last := i == failedChecks-1; s.fail(missed) != last {
			t.Errorf("after %d checks without a majority: given up %t", i+1, !last)
		}
	}
	if err := s.recent(); err != missed {
		t.Errorf("after %d checks without a majority: %v", failedChecks, err)
	}
	s.confirm(now.Add(2*time.Hour), "")
	if err := s.recent(); err != nil {
		t.Errorf("with a majority again: %v", err)
	}
}
