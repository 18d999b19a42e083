package commandline

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// UntilSignal returns a context that a signal ends, with a *SignalError as its cause. stop
// lets signals do again what they did before.
func UntilSignal() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	queue := make(chan os.Signal, 1)
	// With SIGPIPE caught, a reader that went away is a failed write (os/signal
	// documentation), and all ends in order.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	signal.Notify(queue, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	go func() {
		select {
		case sig := <-queue:
			cancel(&SignalError{sig})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(queue)
		cancel(nil)
	}
}

// ExitSignal is what the exit code of a command is more than the signal that ended it.
const ExitSignal = 128

// SignalError is a signal that ends a command early.
type SignalError struct{ signal os.Signal }

func (e *SignalError) Error() string { return e.signal.String() }

// Code is the command's exit code, as shells have it.
func (e *SignalError) Code() int {
	n, _ := e.signal.(syscall.Signal)
	return ExitSignal + int(n)
}
