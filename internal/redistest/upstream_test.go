package redistest

import (
	"strings"
	"testing"
)

// Replies are told from what a server sends by itself, else the reply to cut
// after would be the wrong one.
func TestProxyTellsRepliesFromPushes(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		s, p := behind(t, o)
		p.OnCommand(func(c Command) Action {
			if c.Name() == "PING" && len(c.Args) == 2 {
				return CutAfter
			}
			return Pass
		})

		t.Run("messages, protocol 2", func(t *testing.T) {
			c := dial(t, p.Addr())
			send(t, c, "SUBSCRIBE", "a", "b")
			for range 2 {
				if v, err := c.Receive(); err != nil || len(v.([]any)) != 3 {
					t.Fatalf("confirmation: %v, %v", v, err)
				}
			}
			do(t, s, "PUBLISH", "a", "m1")
			if v, err := c.Receive(); err != nil || v.([]any)[2] != "m1" {
				t.Fatalf("message: %v, %v", v, err)
			}
			send(t, c, "PING", "x")
			broken(t, c)
		})

		t.Run("messages, protocol 3", func(t *testing.T) {
			c := dial(t, p.Addr())
			if _, err := c.Do("HELLO", "3"); err != nil {
				t.Fatal(err)
			}
			ask(t, c, "OK", "SET", "k", "v")
			send(t, c, "SUBSCRIBE", "a", "b")
			for range 2 {
				if v, err := c.Receive(); err != nil || len(v.(Push)) != 3 {
					t.Fatalf("confirmation: %v, %v", v, err)
				}
			}
			do(t, s, "PUBLISH", "a", "m1")
			if v, err := c.Receive(); err != nil || v.(Push)[2] != "m1" {
				t.Fatalf("message: %v, %v", v, err)
			}
			send(t, c, "GET", "k")
			receive(t, c, "v")
			send(t, c, "PING", "x")
			broken(t, c)
		})

		t.Run("tracked keys", func(t *testing.T) {
			c := dial(t, p.Addr())
			if _, err := c.Do("HELLO", "3"); err != nil {
				t.Fatal(err)
			}
			ask(t, c, "OK", "CLIENT", "TRACKING", "ON")
			ask(t, c, "v", "GET", "k")
			// The server executes both before it answers the BLPOP, so that
			// the push comes between a command and its reply.
			send(t, c, "BLPOP", "queue", "0")
			settle(t, p, forwarded("BLPOP", 1))
			do(t, s, "SET", "k", "w")
			v, err := c.Receive()
			if push, ok := v.(Push); err != nil || !ok || push[0] != "invalidate" {
				t.Fatalf("invalidation: %v, %v", v, err)
			}
			do(t, s, "RPUSH", "queue", "e")
			if v, err := c.Receive(); err != nil || len(v.([]any)) != 2 {
				t.Fatalf("BLPOP: %v, %v", v, err)
			}
			send(t, c, "PING", "x")
			broken(t, c)
		})

		t.Run("a refused subscription", func(t *testing.T) {
			c := dial(t, p.Addr())
			ask(t, c, "OK", "MULTI")
			ask(t, c, "QUEUED", "PING")
			send(t, c, "EXEC")
			if v, err := c.Receive(); err != nil || len(v.([]any)) != 1 {
				t.Fatalf("EXEC: %v, %v", v, err)
			}
			send(t, c, "SUBSCRIBE")
			v, err := c.Receive()
			if e, ok := v.(ServerError); err != nil || !ok || !strings.Contains(e.Error(), "wrong number") {
				t.Fatalf("SUBSCRIBE to nothing: %v, %v", v, err)
			}
			ask(t, c, "PONG", "PING")
			send(t, c, "PING", "x")
			broken(t, c)
		})
	})
}

func TestMatchRepliesToCommands(t *testing.T) {
	const (
		message = "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nm\r\n"
		one     = "subscribe\r\n$1\r\na\r\n:1\r\n"
	)
	for name, test := range map[string]struct {
		resp3    bool
		commands []string
		frames   map[string]int // frame → commands that are open after it, -1 if it belongs to none
		order    []string
	}{
		"message before a reply": {
			commands: []string{"SUBSCRIBE a", "PING"},
			order:    []string{"*3\r\n$9\r\n" + one, message, "+PONG\r\n"},
			frames:   map[string]int{"*3\r\n$9\r\n" + one: 1, message: -1, "+PONG\r\n": 0},
		},
		"an array is no message in protocol 3": {
			resp3:    true,
			commands: []string{"SUBSCRIBE a", "LRANGE k 0 -1"},
			order:    []string{">3\r\n$9\r\n" + one, message},
			frames:   map[string]int{">3\r\n$9\r\n" + one: 1, message: 0},
		},
		"confirmation late": {
			resp3:    true,
			commands: []string{"PING", "SUBSCRIBE a"},
			order:    []string{">2\r\n$10\r\ninvalidate\r\n_\r\n", "+PONG\r\n", ">3\r\n$9\r\n" + one},
			frames:   map[string]int{">2\r\n$10\r\ninvalidate\r\n_\r\n": -1, "+PONG\r\n": 1, ">3\r\n$9\r\n" + one: 0},
		},
		"refused": {
			commands: []string{"SUBSCRIBE a b", "PING"},
			order:    []string{"-NOPERM no\r\n", "+PONG\r\n"},
			frames:   map[string]int{"-NOPERM no\r\n": 1, "+PONG\r\n": 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := &upstream{}
			for _, c := range test.commands {
				if !u.expect(strings.Fields(c), Pass) {
					t.Fatal("a new connection is broken")
				}
			}
			for _, frame := range test.order {
				_, _, ok := u.match([]byte(frame), test.resp3)
				open := test.frames[frame]
				if ok != (open >= 0) || ok && len(u.pending) != open {
					t.Fatalf("%q: matched %v, %d commands open, want %d", frame, ok, len(u.pending), open)
				}
			}
		})
	}
}
