//go:build unix

package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/spawn"
)

// Embedded servers listen on ports below those that kernels give to outgoing
// connections, so that no client takes the port of a server that is down, and above
// those that package redistest uses.
const (
	firstPort = 21000
	lastPort  = 30999
)

// embedded is an embedded server. It is a process of its own, so that it can be killed and
// hung like a real one.
type embedded struct {
	address string
	process *spawn.Process
}

var _ node = (*embedded)(nil)

// startEmbedded starts an embedded server on a free port.
func startEmbedded(ctx context.Context) (*embedded, error) {
	var err error
	for range 20 {
		e := &embedded{address: net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort+1)))}
		// If the port is taken, the server fails, and the next try draws another one.
		if err = e.RestartEmpty(ctx); err == nil {
			return e, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return nil, err
}

func (e *embedded) Addr() string { return e.address }

func (e *embedded) Kill() {
	if e.process != nil {
		e.process.Kill()
		e.process.Output.Close()
		e.process = nil
	}
}

func (e *embedded) RestartEmpty(ctx context.Context) error {
	e.Kill()
	p, err := start(NodeCommand, place{Address: e.address})
	if err != nil {
		return err
	}
	e.process = p
	stop := context.AfterFunc(ctx, func() { _ = p.Signal(os.Kill) })
	var answer serving
	err = readLine(bufio.NewReader(p.Output), &answer)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err == nil && answer.Failed != "" {
		err = errors.New(answer.Failed)
	}
	if err != nil {
		e.Kill()
		return fmt.Errorf("embedded server on %s: %w%s", e.address, err, p.Said())
	}
	return nil
}

func (e *embedded) Pause() error { return e.signal(syscall.SIGSTOP) }

func (e *embedded) Resume() error { return e.signal(syscall.SIGCONT) }

func (e *embedded) signal(sig syscall.Signal) error {
	if e.process == nil {
		return errors.New("the embedded server is down")
	}
	return e.process.Signal(sig)
}

func (e *embedded) Close() error {
	e.Kill()
	return nil
}
