package node

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// moving is a connection that breaks and is made again to another server when move is called. The
// servers admit everybody, and grant to those who take them for what they are.
type moving struct {
	scripted
	mu sync.Mutex // guards what follows
	// server is how many servers there have been before this one.
	server int
	// inspected is called after an inspection was answered, with how many there have been.
	inspected   func(n int)
	inspections int
	evicting    bool
	// admitted: the server answers a vote by a grant.
	admitted bool
	mistaken []string // expectations of another server
	// records are what the servers have recorded. moves: so many calls of
	// Connections from now on are followed by a move, the last of them.
	records map[int]string
	moves   int
	written [2]int // to each server, by SET
}

func (c *moving) Connections() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	number := uint64(1 + 2*c.server)
	if c.moves--; c.moves == 0 {
		c.server++
	}
	return number
}

func (c *moving) move() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server++
}

func (c *moving) setEvicting(evicting bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evicting = evicting
}

// run is the run of the server of that number.
func run(server int) string { return strings.Repeat(string(rune('a'+server)), 40) }

func (c *moving) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	if args[0] == "SET" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.written[c.server]++
		return driver.Reply{Kind: driver.Text, Text: "OK"}, nil
	}
	if args[0] != "EVAL" || args[1] != script.Inspect.Text {
		return driver.Reply{Kind: driver.Int, Int: 1}, nil
	}
	text := func(s string) driver.Reply { return driver.Reply{Kind: driver.Text, Text: s} }
	c.mu.Lock()
	info := "run_id:" + run(c.server) + "\r\nmaster_replid:" + run(c.server) + "\r\nrole:master\r\nredis_version:7.0.0\r\n"
	if c.evicting {
		info += "maxmemory:1\r\nmaxmemory_policy:allkeys-lru\r\n"
	}
	record := c.records[c.server]
	c.inspections++
	n := c.inspections
	c.mu.Unlock()
	if c.inspected != nil {
		c.inspected(n)
	}
	return driver.Reply{Kind: driver.Array, Array: []driver.Reply{text(info), text(""), text(record), text(""), text("1")}}, nil
}

func (c *moving) EvalSHA(_ context.Context, sha string, _, args []string) (driver.Reply, error) {
	if sha == script.Releasing.SHA {
		return deleted, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !strings.Contains(args[6], run(c.server)) {
		c.mistaken = append(c.mistaken, args[6])
	}
	if !c.admitted {
		c.admitted = true
		return driver.Reply{Kind: driver.Int, Int: 0}, nil
	}
	return driver.Reply{Kind: driver.Int, Int: 7}, nil
}

// warned is a slog.Handler that is called for warnings.
type warned func()

func (w warned) Enabled(_ context.Context, l slog.Level) bool { return l == slog.LevelWarn }
func (w warned) Handle(context.Context, slog.Record) error    { w(); return nil }
func (w warned) WithAttrs([]slog.Attr) slog.Handler           { return w }
func (w warned) WithGroup(string) slog.Handler                { return w }

// What was found out about a server is not believed of the server behind the next connection,
// wherever the goroutine that looks is overtaken.
func TestSightingOfAnotherConnection(t *testing.T) {
	t.Parallel()
	for name, stall := range map[string]func(c *moving, acquire func()) (warned func()){
		"the answer has come": func(c *moving, _ func()) func() {
			c.inspected = func(n int) {
				if n == 1 {
					c.move()
				}
			}
			return func() {}
		},
		"the answer is judged": func(c *moving, acquire func()) func() {
			c.admitted = false                                  // so the node is looked at again
			c.inspected = func(n int) { c.setEvicting(n == 1) } // which is told in between
			return func() {
				c.move()
				acquire()
			}
		},
	} {
		conn := &moving{admitted: true}
		var n *Node
		acquire := func() vote.Answer {
			return n.Acquire(t.Context(), vote.Acquire{Key: "x", ID: "mine", TTL: time.Second, Proposed: 7})
		}
		n = New(conn, Options{
			Name: "n", Census: NewCensus([]string{"n"}), Agreement: admission.Agreement{Deployment: "d", Nodes: []string{"n"}, MaxTTL: 30 * time.Second, NoQuarantine: true},
			ConnectTimeout: time.Second, Patience: time.Second, Logger: slog.New(warned(stall(conn, func() { acquire() }))),
		})
		t.Cleanup(n.Close)
		acquire()
		acquire()
		if conn.server != 1 {
			t.Errorf("%s: the connection was not renewed", name)
		}
		if len(conn.mistaken) > 0 {
			t.Errorf("%s: the server %s was taken for %q", name, run(conn.server), conn.mistaken)
		}
		if a := acquire(); a.Verdict != vote.Granted {
			t.Errorf("%s: afterwards: %+v", name, a)
		}
	}
}

// A vote that asks for no admission does not count from a server of a deployment with other settings,
// also where that has just taken the place of another.
func TestWriteAfterTheServerWasReplaced(t *testing.T) {
	t.Parallel()
	request := vote.Acquire{Key: "x", ID: "mine", TTL: time.Second}
	refused := 0
	for looks := 1; looks < 20; looks++ { // at the connection, until it leads to another server
		conn := &moving{records: map[int]string{1: `{"nodes":{"n":""},"max_ttl_ms":1000,"no_quarantine":true}`}}
		n := New(conn, Options{
			Name: "n", Census: NewCensus([]string{"n"}), Agreement: admission.Agreement{Deployment: "d", Nodes: []string{"n"}, MaxTTL: 30 * time.Second, NoQuarantine: true},
			ConnectTimeout: time.Second, Patience: time.Second, Logger: slog.New(slog.DiscardHandler),
		})
		t.Cleanup(n.Close)
		if a := n.Take(t.Context(), Native, request); a.Verdict != vote.Granted || conn.written[0] != 1 {
			t.Fatalf("%+v, written %v", a, conn.written)
		}
		conn.moves = looks
		a := n.Take(t.Context(), Native, request)
		if conn.written[1] > 0 && a.Verdict == vote.Granted {
			t.Errorf("replaced after %d looks: the other deployment's server has voted: %+v", looks, a)
		}
		if a.Verdict == vote.Refused && errors.Is(a.Err, admission.ErrInvalid) {
			refused++
		}
	}
	if refused == 0 {
		t.Error("it was never refused")
	}
}
