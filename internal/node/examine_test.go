package node

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
)

// failing is a connection on which the command of one number fails.
type failing struct {
	scripted
	number atomic.Int64 // of the last command
	which  int64
	fail   func(context.Context) error
}

func (c *failing) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	if c.number.Add(1) == c.which {
		return driver.Reply{}, c.fail(ctx)
	}
	text := func(s string) driver.Reply { return driver.Reply{Kind: driver.Text, Text: s} }
	switch args[0] {
	case "TIME":
		return driver.Reply{Kind: driver.Array, Array: []driver.Reply{text("1764000000"), text("0")}}, nil
	case "GET":
		return driver.Reply{}, nil
	case "EVAL":
		return driver.Reply{Kind: driver.Array, Array: make([]driver.Reply, 1)}, nil
	}
	return c.scripted.Do(ctx, args...)
}

// A look that a missing answer ends says so, whichever answer is missing.
func TestLookWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	look := func(t *testing.T, which int64, fail func(context.Context) error) (x *Examination, commands int64) {
		synctest.Test(t, func(t *testing.T) {
			conn := &failing{which: which, fail: fail}
			n := voter(t, conn, math.MaxInt)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			x, commands = n.Look(ctx, []string{"x"}), conn.number.Load()
			n.end()
			n.background.Wait()
		})
		return x, commands
	}
	x, commands := look(t, 0, nil)
	if x.Err != nil || commands < 40 {
		t.Fatalf("%d commands, %v", commands, x.Err)
	}
	for which := range commands {
		if x, _ := look(t, 1+which, func(context.Context) error { return broken }); x.Err != broken {
			t.Errorf("command %d breaks off: %v", 1+which, x.Err)
		}
		x, _ := look(t, 1+which, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if x.Err != errNoAnswer {
			t.Errorf("command %d is not answered: %v", 1+which, x.Err)
		}
	}
}

// measured is a connection to a server with a clock of its own. Its commands take as long as told.
type measured struct {
	scripted
	pings []time.Duration
	reads [][2]time.Duration // to the server, and back
	ahead time.Duration
}

func (c *measured) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	text := func(s string) driver.Reply { return driver.Reply{Kind: driver.Text, Text: s} }
	switch args[0] {
	case "PING":
		if len(c.pings) > 0 { // the permissions are tried at once
			time.Sleep(c.pings[0])
			c.pings = c.pings[1:]
		}
	case "TIME":
		if len(c.reads) > 0 {
			there, back := c.reads[0][0], c.reads[0][1]
			c.reads = c.reads[1:]
			time.Sleep(there)
			now := time.Now().Add(c.ahead)
			time.Sleep(back)
			return driver.Reply{Kind: driver.Array, Array: []driver.Reply{text(strconv.FormatInt(now.Unix(), 10)), text(strconv.Itoa(now.Nanosecond() / 1000))}}, nil
		}
	}
	return c.scripted.Do(ctx, args...)
}

// The round trip in the middle is told, and the clock as the quickest one shows it.
func TestLookMeasures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ms := func(n time.Duration) time.Duration { return n * time.Millisecond }
		n := voter(t, &measured{
			pings: []time.Duration{ms(90), ms(1), ms(70), ms(2), ms(3), ms(80), ms(4)},
			reads: [][2]time.Duration{{ms(10), ms(90)}, {ms(90), ms(10)}, {ms(4), ms(4)}, {ms(10), 0}, {0, ms(20)}},
			ahead: 7 * time.Second,
		}, math.MaxInt)
		x := n.Look(t.Context(), nil)
		if x.Latency != ms(4) || !x.ClockKnown || x.Offset != 7*time.Second || x.OffsetError != ms(4) {
			t.Errorf("a latency of %v; %t, %v ahead, give or take %v", x.Latency, x.ClockKnown, x.Offset, x.OffsetError)
		}
		n.end()
		n.background.Wait()
	})
}
