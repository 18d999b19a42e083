package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ServerError is an error reply, its text as sent: "NOSCRIPT No matching script".
type ServerError string

// Error returns the server's text.
func (e ServerError) Error() string { return string(e) }

// Code returns the first word of the text, by which clients tell errors apart.
func (e ServerError) Code() string {
	code, _, _ := strings.Cut(string(e), " ")
	return code
}

// Push is a message that the server sent on its own, with protocol 3.
type Push []any

// readReply reads one reply of either protocol version.
func readReply(r *bufio.Reader) (any, error) {
	line, err := readLine(r)
	if err != nil {
		return nil, err
	}
	if line == "" {
		return nil, errors.New("empty reply line")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', ',', '(':
		return rest, nil
	case '-':
		return ServerError(rest), nil
	case '_':
		return nil, nil
	case '#':
		return rest == "t", nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("reply line %q: %w", line, err)
	}
	switch kind {
	case ':':
		return n, nil
	case '$', '=', '!':
		return readBulk(r, kind, n)
	case '*', '~', '>', '%', '|':
		return readAggregate(r, kind, n)
	}
	return nil, fmt.Errorf("reply line %q is of no known type", line)
}

func readBulk(r *bufio.Reader, kind byte, n int64) (any, error) {
	if n < 0 {
		return nil, nil
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	text := string(b[:n])
	if kind == '!' {
		return ServerError(text), nil
	}
	return text, nil
}

func readAggregate(r *bufio.Reader, kind byte, n int64) (any, error) {
	if n < 0 {
		return nil, nil
	}
	if kind == '%' || kind == '|' {
		n *= 2
	}
	list := make([]any, 0, min(n, 1024))
	for range n {
		v, err := readReply(r)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	switch kind {
	case '|': // attributes stand before the reply they belong to
		return readReply(r)
	case '>':
		return Push(list), nil
	}
	return list, nil
}

func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), nil
}
