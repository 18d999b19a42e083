package redistest

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// frameLimit bounds one command or reply, which is held until it is whole.
const frameLimit = 64 << 20

var (
	errTooLong  = errors.New("a command or reply of more than 64 MiB")
	errNoFrames = errors.New("not the Redis protocol")
)

// commandSplitter cuts what a client sends into commands.
type commandSplitter struct{ buf []byte }

func (s *commandSplitter) feed(b []byte) { s.buf = append(s.buf, b...) }

// rest returns what has not made a whole command, and forgets it.
func (s *commandSplitter) rest() []byte {
	b := s.buf
	s.buf = nil
	return b
}

// next returns the next whole command, its bytes and its words, which are none
// for an empty line. Without a whole one it returns no bytes.
func (s *commandSplitter) next() (data []byte, args []string, err error) {
	n, args, err := parseCommand(s.buf)
	if err == nil && n == 0 && len(s.buf) > frameLimit {
		err = errTooLong
	}
	if err != nil || n == 0 {
		return nil, nil, err
	}
	data = slices.Clone(s.buf[:n])
	s.buf = s.buf[n:]
	return data, args, nil
}

// parseCommand returns the length and the words of the command that b begins
// with, length 0 if it is not all there yet.
func parseCommand(b []byte) (n int, args []string, err error) {
	if len(b) == 0 {
		return 0, nil, nil
	}
	if b[0] != '*' {
		return parseInline(b)
	}
	count, pos, err := number(b, 1)
	if err != nil || pos == 0 {
		return 0, nil, err
	}
	for range count {
		if pos == len(b) {
			return 0, nil, nil
		}
		if b[pos] != '$' {
			return 0, nil, errNoFrames
		}
		size, start, err := number(b, pos+1)
		if err != nil || start == 0 {
			return 0, nil, err
		}
		if size < 0 || size > frameLimit {
			return 0, nil, errNoFrames
		}
		end := start + size
		if end+2 > len(b) {
			return 0, nil, nil
		}
		args = append(args, string(b[start:end]))
		pos = end + 2
	}
	return pos, args, nil
}

// parseInline reads a command as one types it: a line of words. What does not
// begin like one (TLS, for instance) is not the protocol.
func parseInline(b []byte) (n int, args []string, err error) {
	if c := b[0]; (c|0x20 < 'a' || c|0x20 > 'z') && c != '\r' && c != '\n' && c != ' ' {
		return 0, nil, errNoFrames
	}
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		return 0, nil, nil
	}
	return end + 1, strings.Fields(string(b[:end])), nil
}

// number reads the decimal that starts at pos and ends in CRLF, and returns the
// position after it, 0 if it is not all there yet.
func number(b []byte, pos int) (value, after int, err error) {
	const longest = 32
	end := bytes.IndexByte(b[pos:min(len(b), pos+longest)], '\n')
	if end < 0 {
		if len(b)-pos >= longest {
			return 0, 0, errNoFrames
		}
		return 0, 0, nil
	}
	value, err = strconv.Atoi(string(bytes.TrimSuffix(b[pos:pos+end], []byte{'\r'})))
	if err != nil {
		return 0, 0, errNoFrames
	}
	return value, pos + end + 1, nil
}

// replySplitter cuts what a server sends into replies and pushes. It remembers
// how far it has looked, so that a long reply is not gone through anew for each
// of its pieces.
type replySplitter struct {
	buf  []byte
	pos  int // everything before has been looked at
	open int // values that must still follow; 0 between replies
}

func (s *replySplitter) feed(b []byte) { s.buf = append(s.buf, b...) }

// rest returns what has not made a whole reply, and forgets it.
func (s *replySplitter) rest() []byte {
	b := s.buf
	*s = replySplitter{}
	return b
}

// next returns the next whole reply, nil without one.
func (s *replySplitter) next() ([]byte, error) {
	if s.open == 0 {
		s.open = 1
	}
	for s.open > 0 {
		more, err := s.value()
		if err == nil && !more && len(s.buf) > frameLimit {
			err = errTooLong
		}
		if err != nil || !more {
			return nil, err
		}
	}
	data := slices.Clone(s.buf[:s.pos])
	s.buf, s.pos = s.buf[s.pos:], 0
	return data, nil
}

// value goes past one value, or past an aggregate's head, and reports whether
// it was all there.
func (s *replySplitter) value() (bool, error) {
	if s.pos == len(s.buf) {
		return false, nil
	}
	kind := s.buf[s.pos]
	if strings.IndexByte("+-,(_#", kind) >= 0 {
		end := bytes.IndexByte(s.buf[s.pos:], '\n')
		if end < 0 {
			return false, nil
		}
		s.pos += end + 1
		s.open--
		return true, nil
	}
	n, after, err := number(s.buf, s.pos+1)
	if err != nil || after == 0 {
		return false, err
	}
	if n > frameLimit && kind != ':' {
		return false, errTooLong
	}
	switch kind {
	case ':':
	case '$', '=', '!':
		if n >= 0 {
			after += n + 2
		}
		if after > len(s.buf) {
			return false, nil
		}
	case '*', '~', '>':
		s.open += max(n, 0)
	case '%':
		s.open += 2 * max(n, 0)
	case '|': // attributes are not a value: the one they describe follows
		s.open += 2*max(n, 0) + 1
	default:
		return false, errNoFrames
	}
	s.pos = after
	s.open--
	return true, nil
}

// firstWord returns the first element of an aggregate, in lower case, if it is
// a bulk string: what kind of message a push is.
func firstWord(frame []byte) string {
	n, pos, err := number(frame, 1)
	if err != nil || n < 1 || pos >= len(frame) || frame[pos] != '$' {
		return ""
	}
	size, start, err := number(frame, pos+1)
	if err != nil || size < 0 || start+size > len(frame) {
		return ""
	}
	return strings.ToLower(string(frame[start : start+size]))
}
