package redisconn

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// command is args as they are sent.
func command(args ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.Bytes()
}

// pieces cuts b at random places, and hands each piece to f until one fails.
func pieces(r *rand.Rand, b []byte, f func([]byte) error) error {
	for len(b) > 0 {
		n := 1 + r.IntN(min(len(b), 1+r.IntN(40)))
		if err := f(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// someValue appends a value that may be in a reply.
func someValue(r *rand.Rand, b []byte, depth int) []byte {
	text := strings.Repeat("x\r\n+:"[r.IntN(5):], r.IntN(4))
	kinds := "+-:$_#,(=$"
	if depth < maxDepth {
		kinds += "*%~**"
	}
	switch kind := kinds[r.IntN(len(kinds))]; kind {
	case '+', '-', ',', '(':
		return fmt.Appendf(b, "%c%s\r\n", kind, strings.NewReplacer("\r", "", "\n", "").Replace(text))
	case ':':
		return fmt.Appendf(b, ":%d\r\n", int64(r.Uint64()))
	case '$', '=':
		if r.IntN(5) == 0 {
			return append(b, "$-1\r\n"...)
		}
		return fmt.Appendf(b, "%c%d\r\n%s\r\n", kind, len(text), text)
	case '_':
		return append(b, "_\r\n"...)
	case '#':
		return fmt.Appendf(b, "#%c\r\n", "tf"[r.IntN(2)])
	default:
		n := r.IntN(4)
		if n == 3 && kind == '*' {
			return append(b, "*-1\r\n"...)
		}
		b = fmt.Appendf(b, "%c%d\r\n", kind, n)
		if kind == '%' {
			n *= 2
		}
		for range n {
			b = someValue(r, b, depth+1)
		}
		return b
	}
}

// reference returns what follows the value that b begins with.
func reference(b string) (rest string, ok bool) {
	line, rest, ok := strings.Cut(b, "\r\n")
	if !ok || line == "" {
		return "", false
	}
	n, err := strconv.Atoi(line[1:])
	switch line[0] {
	case '$', '=':
		if n < 0 {
			return rest, err == nil
		}
		if err != nil || len(rest) < n+2 {
			return "", false
		}
		return rest[n+2:], true
	case '*', '%', '~', '>':
		if line[0] == '%' {
			n *= 2
		}
		ok = err == nil
		for range n {
			if ok {
				rest, ok = reference(rest)
			}
		}
	}
	return rest, ok
}

// What servers send passes, in whatever pieces, and is counted as the reference does.
func FuzzReplies(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		var stream []byte
		var ends []int // of replies and pushes
		replies := 0
		for range r.IntN(20) {
			if r.IntN(4) == 0 {
				stream = append(stream, ">2\r\n$7\r\nmessage\r\n"...)
				stream = someValue(r, stream, 1)
			} else {
				stream = someValue(r, stream, 0)
				replies++
			}
			ends = append(ends, len(stream))
		}
		for rest, i := string(stream), 0; rest != ""; i++ {
			var ok bool
			if rest, ok = reference(rest); !ok || len(stream)-len(rest) != ends[i] {
				t.Fatalf("the reference at %d of %q", i, stream)
			}
		}
		var c checker
		for range replies {
			c.pending.add(ordinary, false)
		}
		at, over := 0, 0
		err := pieces(r, stream, func(b []byte) error {
			whole, err := c.reading(b)
			for over < len(ends) && ends[over] <= at+len(b) {
				over++
			}
			if over > 0 && ends[over-1] > at && whole != ends[over-1]-at {
				t.Errorf("%d bytes of %q are whole, want %d", whole, b, ends[over-1]-at)
			}
			at += len(b)
			return err
		})
		if err != nil || c.replies.begun || c.pending.answered != uint64(replies) {
			t.Fatalf("%d of %d replies, %v: %q", c.pending.answered, replies, err, stream)
		}
	})
}

// Whatever comes, what is found does not depend on the pieces it comes in.
func FuzzMalformed(f *testing.F) {
	for _, c := range malformedReplies {
		if len(c.reply) < 1000 {
			f.Add([]byte(c.reply), uint64(1))
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		var outcomes [3]string
		for i := range outcomes {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			var c checker
			for range 3 {
				c.pending.add(ordinary, false)
			}
			read := func(b []byte) error {
				whole, err := c.reading(b)
				if whole < 0 || whole > len(b) {
					t.Fatalf("%d of %d bytes", whole, len(b))
				}
				return err
			}
			var err error
			switch i {
			case 0:
				err = read(stream)
			case 1:
				err = pieces(r, stream, read)
			case 2:
				for at := range stream {
					if err = read(stream[at : at+1]); err != nil {
						break
					}
				}
			}
			outcomes[i] = fmt.Sprint(c.pending.answered, err)
		}
		if outcomes[0] != outcomes[1] || outcomes[0] != outcomes[2] {
			t.Errorf("%q: %q", stream, outcomes)
		}
	})
}

// Commands are counted in whatever pieces they are written.
func FuzzRequests(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		var stream []byte
		want, last := []specialCommand(nil), ""
		sent := uint64(0)
		for range r.IntN(30) {
			name := []string{"GET", "PING", "HELLO", "AUTH", "SELECT", "SUBSCRIBE", "PUNSUBSCRIBE", "XUNSUBSCRIBE", "UNSUBSCRIBEX", ""}[r.IntN(10)]
			args := []string{name}
			for range r.IntN(3) {
				args = append(args, strings.Repeat("*1\r\n$4\r\nPING\r\n", r.IntN(3)))
			}
			stream = append(stream, command(args...)...)
			if name == "PING" && last == "PUNSUBSCRIBE" {
				last = ""
				continue
			}
			sent++
			if kind := kindOf([]byte(name)); kind >= setUp {
				want = append(want, specialCommand{sent, kind})
			}
			last = name
		}
		var c checker
		err := pieces(r, stream, c.writing)
		if err != nil || c.pending.sent.Load() != sent || fmt.Sprint(c.pending.special) != fmt.Sprint(want) {
			t.Errorf("%d commands, %v, want %d, %v: %v", c.pending.sent.Load(), c.pending.special, sent, want, err)
		}
	})
}

// An UNSUBSCRIBE goes with a PING, and has one reply with it or, when it is refused, two.
func TestUnsubscribeIsAnsweredByAPong(t *testing.T) {
	t.Parallel()
	unsubscribed := ">3\r\n$11\r\nunsubscribe\r\n_\r\n:0\r\n"
	for _, c := range []struct {
		replies string
		over    uint64 // replies counted
		words   string
	}{
		{unsubscribed + "+PONG\r\n:1\r\n", 2, ""},
		{"+PONG\r\n" + unsubscribed + ":1\r\n", 2, ""},
		{"-NOPERM no\r\n+PONG\r\n:1\r\n", 2, ""},
		{"-NOPERM no\r\n-NOPERM the 'ping' command\r\n:1\r\n", 2, ""},
		{"-NOPERM no\r\n-LOADING\r\n:1\r\n", 2, ""},
		{"-NOPERM no\r\n:1\r\n", 0, "':' for a PONG"},
		{"-NOPERM no\r\n-NOPERM no\r\n", 0, "'-' for a PONG"},
		{":1\r\n", 0, "':' to the end of a subscription"},
		{"+PONG\r\n:1\r\n:2\r\n", 2, "answers no command"},
	} {
		var k checker
		if err := k.writing(append(append(command("UNSUBSCRIBE"), command("PING")...), command("GET", "k")...)); err != nil {
			t.Fatal(err)
		}
		_, err := k.reading([]byte(c.replies))
		if k.pending.answered != c.over || (err == nil) != (c.words == "") || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%q: %d replies, %v", c.replies, k.pending.answered, err)
		}
	}
}

// What is to be written and is no command is not written.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	for _, b := range []string{"PING\r\n", "*0\r\n", "*1\r\n:1\r\n", "*1\n$1\n", "*-1\r\n", "$1\r\n", strings.Repeat("1", 100)} {
		var c checker
		if err := c.writing([]byte(b)); err == nil {
			t.Errorf("%q", b)
		}
	}
}

// The cost of following one reply to a lock, and one command.
func BenchmarkChecker(b *testing.B) {
	const pipelined = 64
	for name, reply := range map[string]string{
		"number": ":1234567\r\n",
		"array":  "*3\r\n:1234567\r\n:1\r\n:0\r\n",
		"text":   "*2\r\n$22\r\n0123456789012345678901\r\n:19876\r\n",
		"INFO":   "=6004\r\n" + strings.Repeat("x", 6004) + "\r\n",
	} {
		b.Run("reply/"+name, func(b *testing.B) {
			var c checker
			stream := bytes.Repeat([]byte(reply), pipelined)
			b.ReportAllocs()
			for b.Loop() {
				c.pending.sent.Add(pipelined)
				if whole, err := c.reading(stream); whole != len(stream) || err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/pipelined, "ns/reply")
		})
	}
	b.Run("command", func(b *testing.B) {
		var c checker
		stream := bytes.Repeat(command("EVALSHA", strings.Repeat("a", 40), "4", "lock:{x}", "lock:{x}:fence", "lock:{x}:next", "redlatch:deployment",
			"0123456789012345678901", "20000", "0123456789abcdef", "1", ""), pipelined)
		b.ReportAllocs()
		for b.Loop() {
			if err := c.writing(stream); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/pipelined, "ns/command")
	})
}
