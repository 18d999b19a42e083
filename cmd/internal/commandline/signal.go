package commandline

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// UntilSignal returns a context that a signal cancels, with a *SignalError as its cause. HUP and INT
// stay ignored if they were ignored when the program started: nohup, and scripts for their background
// jobs, ignore them on purpose. stop restores what signals did before.
func UntilSignal() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	queue := make(chan os.Signal, 1)
	// With SIGPIPE caught, a write to a reader that has gone away fails (os/signal
	// documentation), and the program ends in order.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(sig) {
			signal.Notify(queue, sig)
		}
	}
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

// ExitSignal is added to the number of the signal that ended a command: the sum is its exit code.
const ExitSignal = 128

// SignalError is the cause of a command's early end: a signal.
type SignalError struct{ signal os.Signal }

func (e *SignalError) Error() string { return e.signal.String() }

// Code returns the command's exit code, which is that of shells.
func (e *SignalError) Code() int {
	n, _ := e.signal.(syscall.Signal)
	return ExitSignal + int(n)
}
