package redisconn

import (
	"bytes"
	"fmt"
)

// These bound what a server may send. The largest reply by far is CLUSTER SLOTS of a Cluster whose
// slots are scattered, up to 5 MB. The next largest is the value of a foreign program's key that
// has a lock's name.
const (
	maxReply    = 16 << 20 // bytes of a reply
	maxElements = 1 << 19  // elements of a reply, those of inner arrays included
	maxArray    = 1 << 14  // elements of an array, and pairs of a map: a Cluster has as many slots
	maxDepth    = 8        // arrays in arrays; CLUSTER SHARDS in EXEC would have 5
	maxLine     = 64 << 10 // bytes of a line of text, such as an error
	maxNumber   = 32       // bytes of any other line
	maxInt      = 1<<31 - 1
	maxPush     = 32 // bytes of a push's name, which says what it is
)

// replies follows what a server sends, in pieces of any size, and finds what the client library
// would stumble over: the library allocates by the length that the server names, and panics at a
// negative length, at a reply to no command and at a redirection to nowhere. Whatever passes can be
// understood in one way only. It belongs to the goroutine that reads.
type replies struct {
	line []byte // the beginning of a line whose end is still to come
	body int    // bytes of the string still to come
	tail int    // bytes of its CRLF still to come
	// left has, for each open array, the number of elements still to come.
	left  [maxDepth]int
	depth int
	// begun: a reply has begun, with bytes bytes and elements elements so far. top is its first
	// byte.
	begun           bool
	top             byte
	bytes, elements int
	// name is the first element of a push. naming: it is still to come.
	naming bool
	name   []byte
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("redis reply: "+format, args...)
}

// reading takes in the bytes that were read. When it finds an error, whole is how many of them
// belong to replies that are complete.
func (c *checker) reading(b []byte) (whole int, err error) {
	r := &c.replies
	for i := 0; i < len(b); {
		switch {
		case r.body > 0:
			n := min(r.body, len(b)-i)
			if r.naming {
				r.name = append(r.name, b[i:i+n]...)
			}
			r.body -= n
			i += n
			continue
		case r.tail > 0:
			if b[i] != "\r\n"[2-r.tail] {
				return whole, malformed("a string is longer than its length")
			}
			i++
			if r.tail--; r.tail > 0 {
				continue
			}
			r.naming = false
			err = c.element()
		default:
			if len(r.line) == 0 {
				if err := c.begin(b[i]); err != nil {
					return whole, err
				}
			}
			if n, size := shortNumber(b[i:]); size > 0 && len(r.line) == 0 && isNumbered(b[i]) {
				kind := b[i]
				i += size
				r.bytes += size
				err = c.number(kind, n)
				break
			}
			at := bytes.IndexByte(b[i:], '\n')
			line := b[i:]
			if at >= 0 {
				line = b[i : i+at+1]
			}
			i += len(line)
			if at < 0 || len(r.line) > 0 {
				r.line = append(r.line, line...)
				line = r.line
			}
			if limit := lineLimit(line[0]); len(line) > limit {
				return whole, malformed("a line of more than %d bytes", limit)
			}
			if at < 0 {
				return whole, nil
			}
			r.line = r.line[:0]
			err = c.header(line)
		}
		if err != nil {
			return whole, err
		}
		if !r.begun {
			whole = i
		}
	}
	return whole, nil
}

func lineLimit(kind byte) int {
	switch kind {
	case '+', '-', ',', '(':
		return maxLine
	}
	return maxNumber
}

// begin takes in the first byte of a value.
func (c *checker) begin(kind byte) error {
	r := &c.replies
	switch kind {
	case '+', '-', ':', '$', '*', '_', '#', ',', '(', '=', '%', '~':
	case '>':
		if r.begun {
			return malformed("a push within a reply")
		}
	default:
		return malformed("type %q", kind)
	}
	if r.naming && kind != '$' {
		return malformed("a push that does not begin with its name")
	}
	if r.begun {
		return nil
	}
	r.begun, r.top, r.bytes, r.elements, r.name = true, kind, 0, 0, r.name[:0]
	if kind != '>' && c.pending.none() && !(kind == '*' && c.pending.messages.Load()) {
		return malformed("%q answers no command", kind)
	}
	return nil
}

// header takes in a line, which is a value or says how long the value is.
func (c *checker) header(line []byte) error {
	r := &c.replies
	if len(line) < len("_\r\n") || line[len(line)-2] != '\r' {
		return malformed("a line that does not end in CRLF")
	}
	kind, text := line[0], line[1:len(line)-2]
	if r.bytes += len(line); r.bytes > maxReply {
		return malformed("more than %d bytes", maxReply)
	}
	switch kind {
	case '$', '=', '*', '%', '~', '>':
		return c.length(kind, text)
	case ':':
		number := bytes.TrimPrefix(text, []byte("-"))
		if _, ok := digits(number); !ok {
			return malformed("%q is not a number", text)
		}
	case '_':
		if len(text) > 0 {
			return malformed("%q is not a null", text)
		}
	case '#':
		if string(text) != "t" && string(text) != "f" {
			return malformed("%q is neither true nor false", text)
		}
	case '-':
		redirects, somewhere := redirection(text)
		switch {
		case redirects && !somewhere:
			return malformed("%q names no address", text)
		case redirects && c.redirections != nil:
			c.redirections.Add(1)
		}
	}
	if r.depth == 0 {
		return c.over(kind, text)
	}
	return c.element()
}

// length takes in the length of a string or of an array.
func (c *checker) length(kind byte, text []byte) error {
	r := &c.replies
	if string(text) == "-1" && (kind == '$' || kind == '*') && !r.naming {
		if r.depth == 0 {
			return c.over('_', nil)
		}
		return c.element()
	}
	number, ok := digits(text)
	switch {
	case len(text) > 1 && text[0] == '-':
		return malformed("negative length %s", text)
	case !ok:
		return malformed("%q is not a length", text)
	}
	return c.number(kind, int(min(number, maxInt)))
}

// number takes in a number, not negative, that is a value or a length.
func (c *checker) number(kind byte, n int) error {
	r := &c.replies
	if r.bytes > maxReply {
		return malformed("more than %d bytes", maxReply)
	}
	if kind == ':' {
		if r.depth == 0 {
			return c.over(kind, nil)
		}
		return c.element()
	}
	if kind == '$' || kind == '=' {
		if r.naming && n > maxPush {
			return malformed("a push whose name has %d bytes", n)
		}
		if n > maxReply-r.bytes {
			return malformed("a string of %d bytes makes more than %d", n, maxReply)
		}
		r.bytes += n
		r.body, r.tail = n, len("\r\n")
		return nil
	}
	if n > maxArray {
		return malformed("%d elements, more than %d", n, maxArray)
	}
	if kind == '%' {
		n *= 2
	}
	if r.elements += n; r.elements > maxElements {
		return malformed("more than %d elements", maxElements)
	}
	push := kind == '>' || kind == '*' && r.depth == 0 && n > 0 && c.pending.messages.Load()
	switch {
	case push && n == 0:
		return malformed("a push without a name")
	case r.depth == maxDepth:
		return malformed("arrays nested more than %d deep", maxDepth)
	case push:
		r.top, r.naming = '>', true
	case n == 0 && r.depth == 0:
		return c.over(kind, nil)
	case n == 0:
		return c.element()
	}
	r.left[r.depth] = n
	r.depth++
	return nil
}

// element takes in that a value is over, which may be an array's.
func (c *checker) element() error {
	r := &c.replies
	for r.depth > 0 {
		if r.left[r.depth-1]--; r.left[r.depth-1] > 0 {
			return nil
		}
		r.depth--
	}
	return c.over(r.top, nil)
}

// over takes in that a reply or a push is over. text is that of a line.
func (c *checker) over(kind byte, text []byte) error {
	r, p := &c.replies, &c.pending
	r.begun = false
	pong := kind == '+' && string(text) == "PONG"
	if kind == '>' {
		switch string(r.name) {
		case "subscribe", "psubscribe", "ssubscribe":
			if p.kind() != subscribe {
				return malformed("a subscription that nobody asked for")
			}
			p.done()
			return nil
		case "pong":
			if !p.messages.Load() {
				return nil
			}
			pong = true
		default:
			return nil
		}
	}
	if p.none() {
		return malformed("%q answers no command", kind)
	}
	switch p.kind() {
	case setUp:
		if kind == '_' {
			return malformed("a null for the connection's set-up")
		}
	case subscribe:
		if kind != '-' {
			return malformed("%q to a subscription", kind)
		}
	case unsubscribe:
		if pong = pong || kind == '-' && unanswerable(text); !pong {
			if kind != '-' {
				return malformed("%q to the end of a subscription", kind)
			}
			p.refused()
			return nil
		}
	case refusedUnsubscribe:
		if !pong && !(kind == '-' && unanswerable(text)) {
			return malformed("%q for a PONG", kind)
		}
	}
	p.done()
	return nil
}

// unanswerable reports whether the client takes the error for a PONG.
func unanswerable(text []byte) bool {
	return bytes.HasPrefix(text, []byte("LOADING")) || bytes.HasPrefix(text, []byte("BUSY")) || bytes.Contains(text, []byte("'ping'"))
}

// redirection reports whether an error must name an address, after a slot, and whether it does.
func redirection(text []byte) (redirects, somewhere bool) {
	text = bytes.TrimPrefix(text, []byte("ERR ")) // as the client does
	spaces := 0
	switch {
	case bytes.HasPrefix(text, []byte("MOVED")), bytes.HasPrefix(text, []byte("ASK")):
		spaces = 2
	case bytes.HasPrefix(text, []byte("REDIRECT")):
		spaces = 1
	}
	return spaces > 0, bytes.Count(text, []byte(" ")) >= spaces
}

// isNumbered reports whether a value of that kind begins with a number.
func isNumbered(kind byte) bool {
	switch kind {
	case ':', '$', '*', '=', '%', '~', '>':
		return true
	}
	return false
}

// shortNumber reads the number in the line at the start of b, after its first byte, and returns the
// line's size. size is 0 if the line is not of the usual simple form.
func shortNumber(b []byte) (n, size int) {
	for i := 1; i < len(b) && i < len(":123456789"); i++ {
		if b[i] == '\r' && i > 1 && i+1 < len(b) && b[i+1] == '\n' {
			return n, i + len("\r\n")
		}
		digit := b[i] - '0'
		if digit > 9 {
			break
		}
		n = n*10 + int(digit)
	}
	return 0, 0
}

// digits reads a number that is not negative. A number too large for any length may be cut off.
func digits(text []byte) (n int64, ok bool) {
	if len(text) == 0 || len(text) > 19 {
		return 0, false
	}
	for _, d := range text {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = min(n*10+int64(d-'0'), 1<<40)
	}
	return n, true
}
