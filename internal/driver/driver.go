// Package driver says what a lock needs of a connection to one server: it keeps commands in order,
// sends none twice, and distinguishes a command that was never sent from one whose reply was lost.
package driver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/printable"
)

// Conn is one ordered, pipelined connection to one server. It is safe for
// concurrent use.
//
// Order: after a call of Do or EvalSHA has returned, for whatever reason, a command given to a
// later call is executed after its command, as long as the connection lives. So a release that
// follows an abandoned acquire cannot overtake it. A Drainer keeps this order only for commands
// with the same first key.
//
// At most once: a command that may have been executed is never sent again.
//
// ctx ends the caller's wait, not the command; but a direct connection may end the command, too, if
// a later one comes before it. When ctx is done before the command was handed to the connection,
// the error wraps ErrNotSent.
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

// LongestUnanswered is how long a Conn keeps a connection that answers nothing. Until then the server may execute
// what was sent.
const LongestUnanswered = 10 * time.Second

// Drainer is a Conn that uses several connections.
type Drainer interface {
	Conn
	// Drain waits until all commands that were given before are over. With a key, it waits only for
	// those on keys in the same Cluster slot.
	Drain(key string)
}

// Cutter is a Conn that can be ended without waiting for what was sent.
type Cutter interface {
	Conn
	// Cut breaks the connection. What is under way ends with an error, even what has not been
	// written yet, and no new connection is made. Close must follow.
	Cut()
}

// Seeker is a Conn that may have to look for its server anew, as this one is a replica.
type Seeker interface {
	Conn
	// Seek breaks the connection where the master may be elsewhere, so that the next command looks for it. It
	// reports whether others choose the master.
	Seek(ctx context.Context) bool
}

// Batcher is a Conn that can send commands on one connection without another caller's between them.
type Batcher interface {
	Conn
	// Batch sends the commands in order and waits for all replies, or for ctx. An error reply is in
	// errs.
	Batch(ctx context.Context, commands ...[]string) (replies []Reply, errs []error)
}

// Listener is a Conn whose server can send messages unasked. Without it a waiter learns of a change
// only when it looks.
type Listener interface {
	Watcher
	// Subscribe passes each message of channel to heard, in order, until the connection breaks or
	// ctx is done; the error then says which. It calls ready once messages can come. Neither
	// function may block.
	Subscribe(ctx context.Context, channel string, ready func(), heard func(message string)) error
}

// Watcher is a Conn whose server tells of changed keys.
type Watcher interface {
	// EvalSHAWatching is EvalSHA. If a key that the script reads then changes, or expires, the
	// function set by OnChange is called with it, once. watched is false where the server does not
	// tell of changes.
	EvalSHAWatching(ctx context.Context, sha string, keys, args []string) (reply Reply, watched bool, err error)
	// DoWatching is Do, and does the same for the keys that the command reads.
	DoWatching(ctx context.Context, args ...string) (reply Reply, watched bool, err error)
	// OnChange sets the function that is called with each key that has changed, and with "" when
	// any key may have. It must be called before anything is watched. changed must not block.
	OnChange(changed func(key string))
}

// ShardListener is a Conn of a Cluster whose masters can send messages unasked.
type ShardListener interface {
	// SubscribeShard is a Listener's Subscribe for a sharded channel (Redis documentation, "Redis
	// Pub/Sub": sharded Pub/Sub), at the master that has the channel's slot. It also ends when that
	// master says that it no longer has the slot.
	SubscribeShard(ctx context.Context, channel string, ready func(), heard func(message string)) error
}

// Commander is a Conn that sends commands of its own, besides those that it is given. Commands
// returns a harmless form of each, by which one can tell whether the user may send it.
type Commander interface{ Commands() [][]string }

// Comparer is a Conn that can act on a condition without a script.
type Comparer interface {
	// IfEqual sends then if the string at key is value, both as one step: WATCH, GET and MULTI, and
	// when these are answered then and EXEC, on a connection that nobody else uses and that is not
	// renewed in between. If the key changes meanwhile it begins anew, until ctx is done. It returns
	// the string found at key, Null if there is none, and the reply to then, which is valid if the
	// two strings are equal.
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

// ErrNotSent says that the server cannot have executed the command, because it never left this
// process. After any other error that is not a *ServerError the outcome is unknown.
var ErrNotSent = errors.New("not sent")

// NotSent wraps err, which kept a command from being sent, in ErrNotSent.
func NotSent(err error) error { return fmt.Errorf("%w: %w", ErrNotSent, err) }

// String returns a text for people. It is printable, whatever the server's texts are.
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

// Error returns the printable part of the text. Some servers repeat the arguments of a command that
// they do not know, such as the password of HELLO and AUTH: these are left out.
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

// Unable reports whether the server does not know the command or this form of it, or denies it to
// this user. The command was not executed; another may do instead.
func (e *ServerError) Unable() bool {
	text := e.withoutERR()
	for _, beginning := range []string{"NOPERM ", "unknown command", "unknown subcommand", "syntax error", "wrong number of arguments"} {
		if strings.HasPrefix(text, beginning) {
			return true
		}
	}
	return false
}

// Passing reports whether the server said that the same command may succeed in a while. The server
// did not execute it because it lacks something: memory, a disk, a replica, a master or
// connections; it reports the last when a client connects. Or it is a replica (ByReplica), or ended a script midway
// (Midway).
func (e *ServerError) Passing() bool {
	switch e.Code() {
	case "LOADING", "BUSY", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN", "OOM", "MISCONF", "NOREPLICAS":
		return true
	}
	// A Cluster's node says "clients + cluster connections".
	return strings.HasPrefix(e.withoutERR(), "max number of clients") || e.ByReplica() || e.Midway()
}

// ByReplica reports whether the server did not execute the command because it is a replica. Of WAIT and WAITAOF it says
// so without a code.
func (e *ServerError) ByReplica() bool {
	return e.Code() == "READONLY" || strings.Contains(e.Text, " cannot be used with replica instances")
}

// LoggedOut reports whether the server did not accept the user, or wants a login first. It executed
// nothing. It may have said so to what sets a connection up, and not to the command.
func (e *ServerError) LoggedOut() bool { return e.Code() == "WRONGPASS" || e.Code() == "NOAUTH" }

// Midway reports whether a Cluster's node ended a script that may have written by then: the hash slot is
// being moved, and a key that the script came to has gone to another node before those that it declares.
func (e *ServerError) Midway() bool {
	return strings.HasPrefix(e.withoutERR(), "Script attempted to access a non local key")
}

// withoutERR returns the text without ERR, the code of errors that have no code of their own.
// Clients may leave it out.
func (e *ServerError) withoutERR() string { return strings.TrimPrefix(e.Text, "ERR ") }

// Redirects reports whether a Cluster's node said that another node has the key.
func (e *ServerError) Redirects() bool { return e.Code() == "MOVED" || e.Code() == "ASK" }
