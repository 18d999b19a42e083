package worker

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
)

// Op is what a worker asks of a register.
type Op string

// Every lock's name has two registers, the open one, which believes everybody,
// and the guarded one, which a token fences. Both hold the ID of the last write.
const (
	OpRead Op = "read" // both registers; announces the token
	// OpPrepare announces a write, after the worker has looked whether it still
	// holds the lock. It changes nothing: it is where a worker is stopped at the
	// worst of moments.
	OpPrepare Op = "prepare"
	OpWrite   Op = "write" // ID over Open and over Guarded, as they were read
)

// Request is a line that a worker sends. Token 0, of a library without tokens,
// leaves the guarded register alone.
type Request struct {
	Worker  int    `json:"worker"`
	Op      Op     `json:"op"`
	Name    string `json:"name"`
	Token   uint64 `json:"token,omitempty"`
	Shared  bool   `json:"shared,omitempty"` // the token is a reader's, who only reads
	ID      string `json:"id,omitempty"`
	Open    string `json:"open,omitempty"`
	Guarded string `json:"guarded,omitempty"`
}

// Reply is the line that answers it. Stale says that the guard refused the
// token.
type Reply struct {
	Open    string `json:"open,omitempty"`
	Guarded string `json:"guarded,omitempty"`
	Stale   bool   `json:"stale,omitempty"`
	Err     string `json:"err,omitempty"`
}

// register is a worker's connection to the registers.
type register struct {
	conn net.Conn
	in   *bufio.Reader
	out  *json.Encoder
}

func dialRegister(address string) (*register, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &register{conn: conn, in: bufio.NewReader(conn), out: json.NewEncoder(conn)}, nil
}

func (r *register) ask(q Request) (Reply, error) {
	var reply Reply
	if err := r.out.Encode(q); err != nil {
		return reply, err
	}
	line, err := r.in.ReadBytes('\n')
	if err != nil {
		return reply, err
	}
	if err := json.Unmarshal(line, &reply); err != nil {
		return reply, err
	}
	if reply.Err != "" {
		return reply, fmt.Errorf("the register: %s", reply.Err)
	}
	return reply, nil
}
