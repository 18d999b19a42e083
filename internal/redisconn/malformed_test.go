package redisconn

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redistest"
)

// malformedReplies are no replies to PING, and what is said of them.
var malformedReplies = []struct{ name, reply, words string }{
	{"negative string", "$-5\r\n", "negative length -5"},
	{"negative array", "*-5\r\n", "negative length -5"},
	{"negative map", "%-1\r\n", "negative length -1"},
	{"negative set", "~-1\r\n", "negative length -1"},
	{"negative push", ">-1\r\n", "negative length -1"},
	{"negative verbatim", "=-1\r\n", "negative length -1"},
	{"huge string", "$2147483647\r\n", "more than 16777216"},
	{"huge verbatim", "=2147483647\r\n", "more than 16777216"},
	{"huge array", "*2147483647\r\n", "more than 16384"},
	{"huge map", "%2147483647\r\n", "more than 16384"},
	{"huge set", "~2147483647\r\n", "more than 16384"},
	{"huge push", ">2147483647\r\n", "more than 16384"},
	{"no int64", "*9223372036854775807\r\n", "more than 16384"},
	{"longer than int64", "$99999999999999999999\r\n", "not a length"},
	{"no length", "$\r\n", "not a length"},
	{"length of letters", "*x\r\n", "not a length"},
	{"attribute", "|1\r\n+ttl\r\n:1\r\n+PONG\r\n", "type '|'"},
	{"streamed string", "$?\r\n;4\r\nPONG\r\n;0\r\n", "not a length"},
	{"streamed array", "*?\r\n:1\r\n.\r\n", "not a length"},
	{"chunk", ";4\r\nPONG\r\n", "type ';'"},
	{"end of a stream", ".\r\n", "type '.'"},
	{"string error", "!3\r\nERR\r\n", "type '!'"},
	{"nested arrays", strings.Repeat("*1\r\n", 100000), "more than 8 deep"},
	{"many elements", strings.Repeat("*16384\r\n"+strings.Repeat("_\r\n", 16383), 8) + "*500000\r\n", "more than"},
	{"endless error", "-" + strings.Repeat("x", 1<<20), "a line of more than 65536 bytes"},
	{"endless status", "+" + strings.Repeat("x", 1<<20), "a line of more than 65536 bytes"},
	{"endless number", ":" + strings.Repeat("1", 1<<20), "a line of more than 32 bytes"},
	{"endless length", "$" + strings.Repeat("1", 1<<20), "a line of more than 32 bytes"},
	{"another protocol", "HTTP/1.1 400 Bad Request\r\n\r\n", "type 'H'"},
	{"zeros", "\x00\x00\x00\x00", `type '\x00'`},
	{"no CRLF", "+PONG\n", "does not end in CRLF"},
	{"string of another length", "$3\r\nPONG\r\n", "longer than its length"},
	{"no number", ":12a\r\n", "not a number"},
	{"no boolean", "#x\r\n", "neither true nor false"},
	{"no null", "_x\r\n", "not a null"},
	{"surplus", "+PONG\r\n+OK\r\n", "'+' answers no command"},
	{"surplus number", "+PONG\r\n:7\r\n", "':' answers no command"},
	{"surplus array", "+PONG\r\n*1\r\n:1\r\n", "'*' answers no command"},
	{"subscribed unasked", ">3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n", "nobody asked for"},
	{"subscribed to patterns unasked", ">3\r\n$10\r\npsubscribe\r\n$1\r\nx\r\n:1\r\n", "nobody asked for"},
	{"empty push", ">0\r\n", "without a name"},
	{"push without name", ">2\r\n:1\r\n:1\r\n", "does not begin with its name"},
	{"push with a long name", ">2\r\n$1000000\r\n", "a push whose name has 1000000 bytes"},
	{"push in an array", "*2\r\n>2\r\n$7\r\nmessage\r\n:1\r\n:1\r\n", "a push within a reply"},
	{"moved to nowhere", "-MOVED\r\n", "names no address"},
	{"moved without address", "-ERR MOVED 1\r\n", "names no address"},
	{"asked at nowhere", "-ASK 1\r\n", "names no address"},
	{"redirected to nowhere", "-REDIRECT\r\n", "names no address"},
}

// afterHello answers HELLO, and everything else with reply until it is nil.
func afterHello(reply *atomic.Pointer[string]) func(redistest.Command) string {
	return func(c redistest.Command) string {
		bad := reply.Load()
		switch {
		case c.Name() == "HELLO":
			return redistest.Helloed
		case bad != nil:
			return *bad
		case c.Name() == "CLIENT":
			return ":1\r\n"
		case c.Name() == "INFO":
			return "$11\r\nrun_id:fake\r\n"
		}
		return "+PONG\r\n"
	}
}

// A reply that is none ends the connection with an error that says what is wrong, and
// the next connection serves. That a surplus reply comes after the last is no
// error of the command before: it is found when the next is sent.
func TestMalformedReplies(t *testing.T) {
	t.Parallel()
	for _, c := range malformedReplies {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var bad atomic.Pointer[string]
			bad.Store(&c.reply)
			conn := connect(t, redistest.NewFake(t, "", afterHello(&bad)).URL())
			_, err := conn.Do(within(t, patience), "PING")
			if !strings.HasPrefix(c.reply, "+PONG\r\n") && (err == nil || !strings.Contains(err.Error(), c.words)) {
				t.Errorf("want the words %q: %v", c.words, err)
			}
			bad.Store(nil)
			awaitPong(t, conn)
		})
	}
}

// awaitPong waits until the connection that broke is replaced. No reply to another
// command is taken for the PONG.
func awaitPong(t *testing.T, conn driver.Conn) {
	t.Helper()
	for ctx := within(t, patience); ; {
		reply, err := conn.Do(ctx, "PING")
		if err == nil && reply.Text == "PONG" {
			return
		}
		if err == nil || ctx.Err() != nil {
			t.Fatalf("the next connection: %+v, %v", reply, err)
		}
	}
}

// The same for the second connection, which the caller's own goroutine reads.
func TestMalformedRepliesAlone(t *testing.T) {
	t.Parallel()
	for _, c := range malformedReplies {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var bad atomic.Pointer[string]
			h := hasty(t, redistest.NewFake(t, "", afterHello(&bad)).URL())
			bad.Store(&c.reply)
			_, err := h.Do(within(t, patience), "PING")
			if !strings.HasPrefix(c.reply, "+PONG\r\n") && (err == nil || !strings.Contains(err.Error(), c.words)) {
				t.Errorf("want the words %q: %v", c.words, err)
			}
			bad.Store(nil)
			awaitPong(t, h)
		})
	}
}

// What cannot set a connection up, and what comes before anything was asked.
func TestMalformedSetUp(t *testing.T) {
	t.Parallel()
	replies := append(malformedReplies[:len(malformedReplies):len(malformedReplies)],
		struct{ name, reply, words string }{"null", "_\r\n", "a null for the connection's set-up"},
		struct{ name, reply, words string }{"null string", "$-1\r\n", "a null for the connection's set-up"},
		struct{ name, reply, words string }{"no map", "+OK\r\n", ""})
	for _, c := range replies {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, redistest.NewFake(t, "", func(redistest.Command) string { return c.reply }).URL())
			_, err := conn.Do(within(t, patience), "PING")
			if err == nil || !strings.HasPrefix(c.reply, "+PONG") && !strings.Contains(err.Error(), c.words) {
				t.Errorf("want the words %q: %v", c.words, err)
			}
		})
	}
	t.Run("before any command", func(t *testing.T) {
		t.Parallel()
		conn := connect(t, redistest.NewFake(t, redistest.Helloed+"+PONG\r\n:1\r\n", func(redistest.Command) string { return "" }).URL())
		if reply, err := conn.Do(within(t, patience), "PING"); err == nil && reply.Text != "PONG" {
			t.Errorf("%+v", reply)
		}
	})
}

// A Cluster's node can send a command round in circles, and its description of the
// Cluster is not to be believed either.
func TestMalformedCluster(t *testing.T) {
	t.Parallel()
	const slots = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:"
	for name, answer := range map[string]func(self string, c redistest.Command) string{
		"moved in circles": func(self string, c redistest.Command) string {
			if c.Name() == "CLUSTER" {
				return slots + self[strings.LastIndex(self, ":")+1:] + "\r\n"
			}
			return "-MOVED 1 " + self + "\r\n"
		},
		"moved to nowhere": func(self string, c redistest.Command) string {
			if c.Name() == "CLUSTER" {
				return slots + self[strings.LastIndex(self, ":")+1:] + "\r\n"
			}
			return "-MOVED\r\n"
		},
		"a negative number of parts": func(string, redistest.Command) string { return "*-5\r\n" },
		"empty parts":                func(string, redistest.Command) string { return "*2\r\n*0\r\n*3\r\n:1\r\n:2\r\n*0\r\n" },
		"slots that cannot be": func(string, redistest.Command) string {
			return slots[:4] + "*3\r\n:-7\r\n:99999999\r\n*2\r\n$1\r\nx\r\n:1\r\n"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var self atomic.Pointer[string]
			fake := redistest.NewFake(t, "", func(c redistest.Command) string {
				if c.Name() == "HELLO" {
					return redistest.Helloed
				}
				return answer(*self.Load(), c)
			})
			address := fake.Addr()
			self.Store(&address)
			c := NewCluster(Options{Network: "tcp", Address: address, Cluster: true, ConnectTimeout: patience / 8})
			t.Cleanup(c.Close)
			_, err := c.Do(within(t, patience), "GET", "k")
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("no end: %v", err)
			}
		})
	}
}

// Sentinels that answer with nothing that can be used.
func TestMalformedSentinel(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{"*-5\r\n", "*2\r\n*0\r\n*0\r\n", "*0\r\n", "+x\r\n+y\r\n"} {
		var bad atomic.Pointer[string]
		bad.Store(&reply)
		fake := redistest.NewFake(t, "", afterHello(&bad))
		conn := open(t, Options{Network: "tcp", Address: fake.Addr(), Master: "m"})
		if _, err := conn.Do(within(t, patience), "PING"); err == nil {
			t.Errorf("%q leads to a master", reply)
		}
	}
}

// A subscription is confirmed by a push, and refused by an error; anything else is none.
func TestMalformedSubscription(t *testing.T) {
	t.Parallel()
	for reply, words := range map[string]string{
		"+QUEUED\r\n":    "'+' to a subscription",
		"-NOPERM no\r\n": "NOPERM",
		">3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n": "nobody asked for",
	} {
		var bad atomic.Pointer[string]
		bad.Store(&reply)
		conn := connect(t, redistest.NewFake(t, "", afterHello(&bad)).URL())
		err := conn.Subscribe(within(t, patience), "x", func() {}, func(string) {})
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: want the words %q: %v", reply, words, err)
		}
	}
}

// A server without HELLO gets a second connection for messages, which are arrays.
func TestMessagesInRESP2(t *testing.T) {
	t.Parallel()
	confirmed := "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n"
	message := "*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$5\r\nhello\r\n"
	var after atomic.Pointer[string]
	fake := redistest.NewFake(t, "", func(c redistest.Command) string {
		switch c.Name() {
		case "HELLO":
			return "-ERR unknown command 'HELLO'\r\n"
		case "SUBSCRIBE":
			return confirmed + message + *after.Load()
		}
		return "+PONG\r\n"
	})
	for _, c := range []struct{ after, words string }{
		{"*2\r\n$4\r\npong\r\n$0\r\n\r\n", "answers no command"},
		{confirmed, "nobody asked for"},
		{"+PONG\r\n", "answers no command"},
		{"*-5\r\n", "negative length -5"},
		{"*1\r\n:1\r\n", "does not begin with its name"},
	} {
		after.Store(&c.after)
		conn := connect(t, fake.URL())
		heard := make(chan string, 1)
		err := conn.Subscribe(within(t, patience), "x", func() {}, func(m string) { heard <- m })
		if err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%q: want the words %q: %v", c.after, c.words, err)
		}
		select {
		case m := <-heard:
			if m != "hello" {
				t.Errorf("heard %q", m)
			}
		default: // the end may come first
		}
		awaitPong(t, conn)
	}
}

// No length that a server names has memory set aside beyond the limits.
func TestMalformedRepliesTakeNoMemory(t *testing.T) {
	for _, reply := range []string{"*2147483647\r\n", "%2147483647\r\n", ">2147483647\r\n", "$2147483647\r\n", strings.Repeat("*16384\r\n", 9)} {
		var bad atomic.Pointer[string]
		bad.Store(&reply)
		conn := connect(t, redistest.NewFake(t, "", afterHello(&bad)).URL())
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := conn.Do(within(t, patience), "PING")
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err == nil || errors.Is(err, driver.ErrNotSent) || took > 2*maxReply {
			t.Errorf("%.20q: %d bytes, %v", reply, took, err)
		}
	}
}
