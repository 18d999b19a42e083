// Package driver says what the lock needs of a connection to one server: that
// it keeps commands in order, sends none twice, and tells a command that was
// never sent from one whose reply was lost.
package driver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/printable"
)

// Conn is one ordered, pipelined connection to one server. It is safe for
// concurrent use.
//
// Order: when a call of Do or EvalSHA has returned, for whatever reason, a
// command given to a later call is executed after it, as long as the
// connection lives. A release that follows an abandoned acquire therefore
// cannot overtake it. A Drainer keeps this order for commands with the same first
// key only.
//
// At most once: a command that may have been executed is never sent again.
//
// ctx ends the caller's wait, not the command; a DirectConn may end the command too,
// if a later one comes before it. When ctx is done before the
// command was handed to the connection the error wraps ErrNotSent.
type Conn interface {
	// Do sends one command and waits for its reply.
	Do(ctx context.Context, args ...string) (Reply, error)
	// EvalSHA runs a script that the server has loaded. It keeps neither keys nor
	// args.
	EvalSHA(ctx context.Context, sha string, keys, args []string) (Reply, error)
	// Connections counts the connections made and those broken so far. A change
	// between two commands means that the second may have reached another
	// server.
	Connections() uint64
	// Close closes the connection; commands under way end with an error.
	Close()
}

// Drainer is a Conn over several connections.
type Drainer interface {
	Conn
	// Drain waits until all commands that were given before are over, or with a
	// key, those on keys in its Cluster slot.
	Drain(key string)
}

// Cutter is a Conn that can be ended without waiting for what was sent.
type Cutter interface {
	Conn
	// Cut breaks the connection. What is under way ends with an error, also what has not been
	// written yet, and none is made again. Close comes after it.
	Cut()
}

// Seeker is a Conn that may have to look for its server anew, as one does whose
// master others choose.
type Seeker interface {
	Conn
	// Seek breaks the connection, so that the next command looks for the server.
	// It reports false, and does nothing, where there is only one place to look.
	Seek() bool
}

// Batcher is a Conn that can put commands on one connection with no other
// caller's between them.
type Batcher interface {
	Conn
	// Batch sends the commands in order and waits for all replies, or for ctx. A
	// reply that is an error is in errs.
	Batch(ctx context.Context, commands ...[]string) (replies []Reply, errs []error)
}

// Listener is a Conn whose server can speak first. Without it a waiter learns of
// a change when it looks.
type Listener interface {
	Watcher
	// Subscribe hands each message of channel to heard, in order, until the
	// connection breaks or ctx is done; the error then says which. ready is
	// called once messages come. Neither may block.
	Subscribe(ctx context.Context, channel string, ready func(), heard func(message string)) error
}

// Watcher is a Conn whose server tells of keys that change.
type Watcher interface {
	// EvalSHAWatching is EvalSHA, and has a change of a key that the script reads,
	// its expiry too, told to the function of OnChange, once. watched is false
	// where the server does not.
	EvalSHAWatching(ctx context.Context, sha string, keys, args []string) (reply Reply, watched bool, err error)
	// DoWatching is Do, with the same for the keys that the command reads.
	DoWatching(ctx context.Context, args ...string) (reply Reply, watched bool, err error)
	// OnChange sets who is told of keys that have changed, and of "" when any may
	// have. It is called before anything is watched, and changed must not block.
	OnChange(changed func(key string))
}

// ShardListener is a Conn of a Cluster whose masters can speak first.
type ShardListener interface {
	// SubscribeShard is Subscribe of a Listener, for a sharded channel (Redis documentation,
	// "Redis Pub/Sub": sharded Pub/Sub), at the master that has the channel's slot. It ends
	// also when that master says that it has the slot no more.
	SubscribeShard(ctx context.Context, channel string, ready func(), heard func(message string)) error
}

// Commander is a Conn that sends commands of its own, beside those that it is given. Commands has
// a form of each that changes nothing, by which one can tell whether it is permitted.
type Commander interface{ Commands() [][]string }

// Comparer is a Conn that can act on a condition without a script.
type Comparer interface {
	// IfEqual sends then if the string at key is value, both as one step: WATCH
	// and GET, then MULTI, then and EXEC, on a connection that nobody else uses
	// and that is not renewed in between. It begins anew when the key changed
	// meanwhile, until ctx is done. It returns the string found at key, Null if
	// none, and the reply to then, which is valid when the two strings are equal.
	//
	// An error wraps ErrNotSent when then cannot have been executed.
	IfEqual(ctx context.Context, key, value string, then ...string) (found, reply Reply, err error)
}

// Kind tells what a Reply holds.
type Kind uint8

// The kinds of reply that the scripts and commands of this library use.
const (
	Null Kind = iota
	Int
	Text
	Array
)

// Reply is a server's answer, other than an error.
type Reply struct {
	Kind  Kind
	Int   int64
	Text  string
	Array []Reply
}

// ErrNotSent says that the server cannot have executed the command: it never
// left this process. Any other error that is not a *ServerError leaves the
// outcome unknown.
var ErrNotSent = errors.New("not sent")

// NotSent wraps err, which kept a command from being sent.
func NotSent(err error) error { return fmt.Errorf("%w: %w", ErrNotSent, err) }

// String is for people: it is printable, whatever the server's texts are.
func (r Reply) String() string {
	switch r.Kind {
	case Null:
		return "null"
	case Int:
		return strconv.FormatInt(r.Int, 10)
	case Text:
		return strconv.Quote(r.Text)
	}
	parts := make([]string, len(r.Array))
	for i, part := range r.Array {
		parts[i] = part.String()
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// ServerError is an error reply. Text is the server's own.
type ServerError struct{ Text string }

// Error returns what can be printed of the text. Some servers repeat arguments of a
// command that they do not know, such as the password of HELLO and AUTH: these are
// left out.
func (e *ServerError) Error() string {
	text, _, cut := strings.Cut(e.Text, ", with args beginning with:")
	if cut {
		text += ", with arguments"
	}
	return printable.Text(text)
}

// Code returns the first word of the reply, such as "WRONGTYPE", by which
// servers tell errors apart (Redis documentation, RESP protocol: simple
// errors).
func (e *ServerError) Code() string {
	code, _, _ := strings.Cut(e.Text, " ")
	return code
}

// Unable reports that the server does not know the command or this form of it,
// or denies it to this user: another may do instead. It was not executed.
func (e *ServerError) Unable() bool {
	text := e.withoutERR()
	for _, beginning := range []string{"NOPERM ", "unknown command", "unknown subcommand", "syntax error", "wrong number of arguments"} {
		if strings.HasPrefix(text, beginning) {
			return true
		}
	}
	return false
}

// Passing reports whether the server said that the same command may succeed in
// a while: it did not execute it for what it is short of, be it memory, a disk, a
// replica, a master or connections. A server says the last when a client connects.
func (e *ServerError) Passing() bool {
	switch e.Code() {
	case "LOADING", "BUSY", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN", "OOM", "MISCONF", "NOREPLICAS":
		return true
	}
	// A Cluster's node adds to "clients" the connections to other nodes.
	return strings.HasPrefix(e.withoutERR(), "max number of clients")
}

// withoutERR returns the text without the code of errors that have none of their own,
// which clients may leave out.
func (e *ServerError) withoutERR() string { return strings.TrimPrefix(e.Text, "ERR ") }

// Redirects reports whether a Cluster's node said that another has the key.
func (e *ServerError) Redirects() bool { return e.Code() == "MOVED" || e.Code() == "ASK" }
