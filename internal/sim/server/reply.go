package server

import "github.com/redlatch/redlatch/internal/driver"

// reply is what a command answers.
type reply struct {
	kind  kind
	int   int64
	text  string
	array []reply
}

type kind uint8

const (
	null kind = iota
	integer
	bulk
	status
	failure
	array
)

const (
	wrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"
	readOnly  = "READONLY You can't write against a read only replica."
	noScript  = "NOSCRIPT No matching script. Please use EVAL."
	syntax    = "ERR syntax error"
	noInteger = "ERR value is not an integer or out of range"
	noFloat   = "ERR value is not a valid float"
)

var ok = reply{kind: status, text: "OK"}

func refuse(text string) reply       { return reply{kind: failure, text: text} }
func number(n int64) reply           { return reply{kind: integer, int: n} }
func text(s string) reply            { return reply{kind: bulk, text: s} }
func list(elements ...reply) reply   { return reply{kind: array, array: elements} }
func count[T int | int64](n T) reply { return reply{kind: integer, int: int64(n)} }

// truth is 1 or 0.
func truth(is bool) reply {
	if is {
		return number(1)
	}
	return number(0)
}

// toDriver is the reply as a client sees it. One that fails within an array is seen as
// its text.
func (r reply) toDriver() driver.Reply {
	switch r.kind {
	case integer:
		return driver.Reply{Kind: driver.Int, Int: r.int}
	case bulk, status, failure:
		return driver.Reply{Kind: driver.Text, Text: r.text}
	case array:
		elements := make([]driver.Reply, len(r.array))
		for i, element := range r.array {
			elements[i] = element.toDriver()
		}
		return driver.Reply{Kind: driver.Array, Array: elements}
	}
	return driver.Reply{}
}
