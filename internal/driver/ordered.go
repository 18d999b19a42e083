package driver

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/hashslot"
)

var _ Drainer = (*Ordered)(nil)

// orderedPatience bounds how long one command is with the client, which should have limits of its
// own: a command that the client gives up may still be executed.
const orderedPatience = 30 * time.Second

// Call sends one command, once, through a client that keeps no order. It returns when the command
// is over: answered, or known to get no answer.
type Call func(ctx context.Context, args []string) (Reply, error)

// Ordered is a Conn over a client of many connections, such as a pool's or a Cluster's. A command
// waits for earlier commands with the same first key. That is as much order as a lock needs while
// the connections live. A command that was lost with its connection may still be in a socket of a
// server that hangs, and be executed after later ones. Ordered does not bound how many commands
// there are; its callers do.
type Ordered struct {
	call Call

	life    context.Context // ends in Close
	end     context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex // guards what follows; nothing is called while it is held
	closed bool
	// tails has the last command of each key, if that is not over.
	tails map[string]*passage
	// all has every command that is not over, by its number, and count is the last of these.
	all   map[uint64]*passage
	count uint64
}

// passage is one command on its way.
type passage struct {
	number uint64
	key    string
	over   chan struct{}
	// settled: the command was handed to the client, or its caller left before that.
	settled atomic.Bool
}

var errOrderedClosed = errors.New("the connection was closed")

// NewOrdered returns a Conn that sends commands by call.
func NewOrdered(call Call) *Ordered {
	o := &Ordered{call: call, tails: make(map[string]*passage), all: make(map[uint64]*passage)}
	o.life, o.end = context.WithCancel(context.Background())
	return o
}

// Connections implements Conn. It is constant: a connection that breaks says nothing about the
// servers behind the others. A step has to find out itself which server executed it.
func (o *Ordered) Connections() uint64 { return 1 }

// Close implements Conn. It does not close the client.
func (o *Ordered) Close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.end()
	o.running.Wait()
}

// EvalSHA implements Conn.
func (o *Ordered) EvalSHA(ctx context.Context, sha string, keys, args []string) (Reply, error) {
	return o.Do(ctx, EvalSHA(sha, keys, args)...)
}

// EvalSHA returns the command that runs a script by its name.
func EvalSHA(sha string, keys, args []string) []string {
	command := make([]string, 0, 3+len(keys)+len(args))
	command = append(command, "EVALSHA", sha, strconv.Itoa(len(keys)))
	return append(append(command, keys...), args...)
}

// Do implements Conn.
func (o *Ordered) Do(ctx context.Context, args ...string) (Reply, error) {
	return o.DoBy(ctx, o.call, args...)
}

// DoBy is Do with another way to send. It keeps its order with the commands of Do.
func (o *Ordered) DoBy(ctx context.Context, call Call, args ...string) (Reply, error) {
	if ctx.Err() != nil {
		return Reply{}, NotSent(context.Cause(ctx))
	}
	p, before, err := o.enter(args)
	if err != nil {
		return Reply{}, NotSent(err)
	}
	var reply Reply
	answered := make(chan struct{})
	go func() {
		defer o.leave(p)
		reply, err = o.send(call, p, before, args)
		close(answered)
	}()
	select {
	case <-answered:
		return reply, err
	case <-ctx.Done():
		if p.settled.CompareAndSwap(false, true) {
			return Reply{}, NotSent(context.Cause(ctx))
		}
		return Reply{}, context.Cause(ctx)
	}
}

// send waits for the commands before p, and sends it unless its caller has left.
func (o *Ordered) send(call Call, p, before *passage, args []string) (Reply, error) {
	if before != nil {
		<-before.over
	}
	if !p.settled.CompareAndSwap(false, true) {
		return Reply{}, nil // nobody listens
	}
	ctx, cancel := context.WithTimeout(o.life, orderedPatience)
	defer cancel()
	return call(ctx, args)
}

// enter adds a command, and returns the one that it must wait for.
func (o *Ordered) enter(args []string) (p *passage, before *passage, err error) {
	p = &passage{over: make(chan struct{})}
	if at := FirstKey(args); at > 0 {
		p.key = args[at]
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, nil, errOrderedClosed
	}
	if p.key != "" {
		before = o.tails[p.key]
		o.tails[p.key] = p
	}
	o.count++
	p.number = o.count
	o.all[p.number] = p
	o.running.Add(1)
	return p, before, nil
}

// Drain implements Drainer.
func (o *Ordered) Drain(key string) {
	var under []*passage
	o.mu.Lock()
	for _, p := range o.all {
		under = append(under, p)
	}
	o.mu.Unlock()
	for _, p := range under {
		if key == "" || p.key != "" && hashslot.Same(key, p.key) {
			<-p.over
		}
	}
}

func (o *Ordered) leave(p *passage) {
	o.mu.Lock()
	if o.tails[p.key] == p {
		delete(o.tails, p.key)
	}
	delete(o.all, p.number)
	o.mu.Unlock()
	close(p.over)
	o.running.Done()
}

// FirstKey returns the index of the first key in a command of this library, 0 if it has none.
func FirstKey(args []string) int {
	at := 1
	switch strings.ToUpper(args[0]) {
	case "EVAL", "EVALSHA":
		if len(args) < 3 || args[2] == "0" {
			return 0
		}
		at = 3
	case "PING", "INFO", "TIME", "PUBSUB", "CONFIG", "ACL", "WAIT", "WAITAOF", "SCRIPT", "CLUSTER", "SENTINEL":
		return 0
	}
	if at >= len(args) {
		return 0
	}
	return at
}
