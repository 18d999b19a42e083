//go:build linux

package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
	"github.com/redlatch/redlatch/fence"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

// registers is a server of the registers that the locks protect. The workers connect to it.
type registers struct {
	listener net.Listener
	guard    fence.Memory
	wg       sync.WaitGroup

	mu     sync.Mutex // guards what follows; never held while anything waits
	values map[register]string
	writes []history.Write
	aims   map[int]*ambush // by worker
	conns  map[net.Conn]bool
	closed bool
}

// register identifies a register: each name has a guarded one and an open one.
type register struct {
	name    string
	guarded bool
}

// aim is the moment at which a worker is to be stopped or killed.
type aim string

const (
	anywhere  aim = ""
	atRead    aim = "between its read and its write"
	atPrepare aim = "after it has looked whether it holds the lock, before its write"
)

var aims = []aim{anywhere, atRead, atRead, atPrepare, atPrepare}

// ambush waits for the next operation of a sort that a worker sends. The reply then waits.
type ambush struct {
	op   worker.Op
	hit  chan struct{} // closed when the worker has sent the operation
	gone chan struct{} // closed when the reply may be sent
}

func startRegisters() (*registers, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &registers{listener: listener, values: map[register]string{}, aims: map[int]*ambush{}, conns: map[net.Conn]bool{}}
	r.wg.Go(r.accept)
	return r, nil
}

func (r *registers) addr() string { return r.listener.Addr().String() }

func (r *registers) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		r.mu.Lock()
		if r.closed {
			conn.Close()
		} else {
			r.conns[conn] = true
			r.wg.Go(func() { r.serve(conn) })
		}
		r.mu.Unlock()
	}
}

// serve answers the requests of one connection of a worker.
func (r *registers) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		r.mu.Lock()
		delete(r.conns, conn)
		r.mu.Unlock()
	}()
	in, out := bufio.NewReader(conn), json.NewEncoder(conn)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return // the worker has closed the connection, or died
		}
		var q worker.Request
		var reply worker.Reply
		if err := json.Unmarshal(line, &q); err != nil {
			reply.Err = err.Error()
		} else {
			reply = r.answer(q)
			r.spring(q)
		}
		if out.Encode(reply) != nil {
			return
		}
	}
}

// answer executes a request. A guarded register is accessed in the same step in which its guard checks the
// token.
func (r *registers) answer(q worker.Request) worker.Reply {
	if q.Shared && q.Op != worker.OpRead {
		return worker.Reply{Err: "a reader's token is no writer's"}
	}
	open, guarded := register{q.Name, false}, register{q.Name, true}
	var reply worker.Reply
	switch q.Op {
	case worker.OpPrepare:
		return reply
	case worker.OpRead, worker.OpWrite:
	default:
		reply.Err = "no such operation: " + string(q.Op)
		return reply
	}
	r.do(q, open, q.Open, &reply.Open)
	if q.Token == 0 {
		return reply
	}
	enter := r.guard.Do
	if q.Shared {
		enter = r.guard.DoShared
	}
	err := enter(context.Background(), q.Name, q.Token, func() error {
		r.do(q, guarded, q.Guarded, &reply.Guarded)
		return nil
	})
	switch {
	case errors.Is(err, fence.ErrStale):
		reply.Stale = true
	case err != nil:
		reply.Err = err.Error()
	}
	return reply
}

// do reads or writes one register. prev is what the worker had read before it writes.
func (r *registers) do(q worker.Request, at register, prev string, value *string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.Op == worker.OpWrite {
		r.values[at] = q.ID
		r.writes = append(r.writes, history.Write{Name: at.name, Guarded: at.guarded, ID: q.ID, Prev: prev})
	}
	*value = r.values[at]
}

// lay lays an ambush for a worker. When the worker sends the operation, spring closes hit and blocks,
// so that the worker gets no reply, until lift.
func (r *registers) lay(number int, at aim) *ambush {
	a := &ambush{op: worker.OpRead, hit: make(chan struct{}), gone: make(chan struct{})}
	if at == atPrepare {
		a.op = worker.OpPrepare
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.aims[number] = a
	return a
}

// spring blocks before the reply to a request for which there is an ambush.
func (r *registers) spring(q worker.Request) {
	r.mu.Lock()
	a := r.aims[q.Worker]
	if a == nil || a.op != q.Op {
		r.mu.Unlock()
		return
	}
	delete(r.aims, q.Worker)
	r.mu.Unlock()
	close(a.hit)
	<-a.gone
}

// lift removes an ambush and lets the reply be sent if it waits.
func (r *registers) lift(number int, a *ambush) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.aims[number] == a {
		delete(r.aims, number)
	}
	close(a.gone)
}

// close ends all connections, and returns all writes in the order in which they happened.
func (r *registers) close() []history.Write {
	r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for conn := range r.conns {
		conn.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
	return r.writes
}
