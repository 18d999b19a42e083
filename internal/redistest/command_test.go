package redistest

import (
	"fmt"
	"testing"
)

func TestProxyOnCommand(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		for _, pipelined := range []bool{false, true} {
			t.Run(fmt.Sprintf("pipelined=%v", pipelined), func(t *testing.T) {
				s, p := behind(t, o)
				// act sends a command that passes and two SETs, the first of
				// which is acted on.
				act := func(key string, a Action) *Conn {
					p.OnCommand(func(c Command) Action {
						if c.Name() == "SET" && c.Args[1] == key {
							return a
						}
						return Pass
					})
					c := dial(t, p.Addr())
					first := encode([]string{"INCR", key + "-n"})
					if !pipelined {
						ask(t, c, int64(1), "INCR", key+"-n")
						first = nil
					}
					rest := append(encode([]string{"SET", key, "v"}), encode([]string{"SET", key + "-after", "v"})...)
					if _, err := c.nc.Write(append(first, rest...)); err != nil {
						t.Fatal(err)
					}
					if pipelined && a != CutBefore {
						receive(t, c, int64(1))
					}
					return c
				}
				c := act("before", CutBefore)
				settle(t, p, func(s Stats) bool { return s.Open == 0 })
				if pipelined {
					// Whether the first reply came through is open.
					_, _ = c.Receive()
				}
				broken(t, c)
				want(t, "EXISTS of what was cut before", do(t, s, "EXISTS", "before", "before-after"), int64(0))

				broken(t, act("after", CutAfter))
				want(t, "EXISTS of what was cut after", do(t, s, "EXISTS", "after"), int64(1))

				c = act("deaf", DropReply)
				settle(t, p, func(s Stats) bool { return s.DiscardedBytes == 2*int64(len("+OK\r\n")) })
				want(t, "EXISTS of what was not answered", do(t, s, "EXISTS", "deaf", "deaf-after"), int64(2))
				silent(t, c)
				p.DropReplies(false)
				broken(t, c)
			})
		}
	})
}

// What the hook does to the proxy holds for the command it was called with.
func TestProxyOnCommandSetsAFault(t *testing.T) {
	s, p := behind(t, Options{})
	p.OnCommand(func(c Command) Action {
		switch c.Args[0] {
		case "SET":
			p.HoldBack(Requests, true)
		case "DEL":
			p.BlackHole(Requests, true)
		case "INCR":
			p.Cut()
		}
		return Pass
	})
	c := dial(t, p.Addr())
	send(t, c, "SET", "k", "v")
	if err := p.AwaitCommand(within(t), "SET", 1); err != nil {
		t.Fatal(err)
	}
	silent(t, c)
	want(t, "EXISTS while held", do(t, s, "EXISTS", "k"), int64(0))
	p.HoldBack(Requests, false)
	receive(t, c, "OK")

	send(t, c, "DEL", "k")
	settle(t, p, func(s Stats) bool { return s.DiscardedBytes > 0 })
	want(t, "EXISTS while black-holed", do(t, s, "EXISTS", "k"), int64(1))
	p.BlackHole(Requests, false)
	broken(t, c)

	c = dial(t, p.Addr())
	send(t, c, "INCR", "n")
	broken(t, c)
	want(t, "EXISTS of what was cut", do(t, s, "EXISTS", "n"), int64(0))
}
