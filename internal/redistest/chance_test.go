package redistest

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

func TestSameSeedSameLuck(t *testing.T) {
	rolls := func(seed, order uint64, conn int, dir Direction) []luck {
		d := newDice(seed, conn, dir)
		var ls []luck
		for range 50 {
			ls = append(ls, d.roll(rules{reorderSeed: order, reorderMax: time.Second}))
		}
		return ls
	}
	first := rolls(1, 2, 3, Requests)
	if !slices.Equal(first, rolls(1, 2, 3, Requests)) {
		t.Fatal("the same seed gives other luck")
	}
	for name, other := range map[string][]luck{
		"seed":       rolls(9, 2, 3, Requests),
		"order":      rolls(1, 9, 3, Requests),
		"connection": rolls(1, 2, 9, Requests),
		"direction":  rolls(1, 2, 3, Replies),
	} {
		if slices.Equal(first, other) {
			t.Fatalf("another %s gives the same luck", name)
		}
	}
	// A new seed takes effect on a connection that has used another.
	d := newDice(1, 3, Requests)
	d.roll(rules{reorderSeed: 9, reorderMax: time.Second})
	if l := d.roll(rules{reorderSeed: 2, reorderMax: time.Second}); l.extra != first[0].extra {
		t.Fatalf("the first luck of a new seed is %v, want %v", l.extra, first[0].extra)
	}
	for _, l := range first {
		if l.extra < 0 || l.extra >= time.Second || l.of(time.Second) < 0 || l.of(time.Second) >= time.Second {
			t.Fatalf("out of bounds: %+v", l)
		}
	}
}

// A command sent later on another connection gets there first, sooner or later.
func TestProxyReorder(t *testing.T) {
	s, p := behind(t, Options{})
	a, b := dial(t, p.Addr()), dial(t, p.Addr())
	ask(t, a, "PONG", "PING")
	ask(t, b, "PONG", "PING")
	p.Reorder(7, 20*time.Millisecond)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		do(t, s, "DEL", "k")
		send(t, a, "SETNX", "k", "first")
		send(t, b, "SETNX", "k", "second")
		for _, c := range []*Conn{a, b} {
			if _, err := c.Receive(); err != nil {
				t.Fatal(err)
			}
		}
		if do(t, s, "GET", "k") == "second" {
			return
		}
	}
	t.Fatal("with seed 7, no command overtook another")
}

// Faults of all kinds while clients come and go, for the race detector and for
// deadlocks. With all of them lifted, the proxy works; closed, it is gone.
func TestProxyUnderAllFaults(t *testing.T) {
	seed := rand.Uint64()
	if env := os.Getenv("REDISTEST_SEED"); env != "" {
		var err error
		if seed, err = strconv.ParseUint(env, 10, 64); err != nil {
			t.Fatalf("REDISTEST_SEED: %v", err)
		}
	}
	t.Logf("to replay the faults: REDISTEST_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s, p := behind(t, Options{})
	p.OnCommand(func(c Command) Action {
		if c.N%50 == 0 {
			return Action(c.Conn % 4)
		}
		return Pass
	})
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := Dial(t.Context(), p.Addr())
				if err != nil {
					continue // refused
				}
				for range 100 {
					_ = c.nc.SetDeadline(time.Now().Add(20 * time.Millisecond))
					if _, err := c.nc.Write(encode([]string{"INCR", "n"})); err != nil {
						break
					}
					if _, err := readReply(c.r); err != nil {
						break
					}
				}
				c.Close()
			}
		})
	}
	for range 300 {
		on, dir := random.IntN(2) == 0, Direction(1+random.IntN(3))
		some := time.Duration(random.IntN(2000)) * time.Microsecond
		switch random.IntN(11) {
		case 0:
			p.BlackHole(dir, on)
		case 1:
			p.HoldBack(dir, on)
		case 2:
			p.Delay(dir, some, some)
		case 3:
			p.Cut()
		case 4:
			p.Hangup()
		case 5:
			if err := p.Refuse(on); err != nil {
				t.Error(err)
			}
		case 6:
			p.Reorder(seed, some)
		case 7:
			p.KeepClientOpen(on)
		case 8:
			p.AnswerLost([]string{"", "ERR lost"}[random.IntN(2)])
		case 9:
			p.DropReplies(on)
		case 10:
			if _, err := s.Do("CLIENT", "KILL", "TYPE", "normal"); err != nil {
				t.Error(err)
			}
		}
		n := p.Stats().Seen["INCR"]
		// Go on once something has passed, or a moment later if nothing can.
		waitSome(t, p, n+20)
	}
	close(stop)
	clients.Wait()
	p.BlackHole(Both, false)
	p.HoldBack(Both, false)
	p.Delay(Both, 0, 0)
	p.Reorder(0, 0)
	p.KeepClientOpen(false)
	p.OnCommand(nil)
	if err := p.Refuse(false); err != nil {
		t.Fatal(err)
	}
	settle(t, p, func(s Stats) bool { return s.Open == 0 })
	ask(t, dial(t, p.Addr()), "PONG", "PING")
	p.Close()
	if st := p.Stats(); st.Open != 0 {
		t.Fatalf("%d connections are open after Close", st.Open)
	}
	if c, err := Dial(t.Context(), p.Addr()); err == nil {
		c.Close()
		t.Fatal("accepts connections after Close")
	}
	p.Close()
}

func waitSome(t *testing.T, p *Proxy, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
	defer cancel()
	_ = p.Await(ctx, func(s Stats) bool { return s.Seen["INCR"] >= n }) // in vain, under a black hole
}
