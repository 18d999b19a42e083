package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that a signal ends, with a *signalError as its
// cause.
func untilSignal() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	queue := make(chan os.Signal, 1)
	// With SIGPIPE caught, a reader that went away is a failed write (os/signal
	// documentation), and all ends in order.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	signal.Notify(queue, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	go func() {
		select {
		case sig := <-queue:
			cancel(&signalError{sig})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(queue)
		cancel(nil)
	}
}

// signalCode is the exit code of a command that a signal ended.
func signalCode(ctx context.Context) int {
	if ended, ok := errors.AsType[*signalError](context.Cause(ctx)); ok {
		return ended.code()
	}
	return exitInternal
}

// signalError ends a command early.
type signalError struct{ signal os.Signal }

func (e *signalError) Error() string { return e.signal.String() }

func (e *signalError) code() int {
	n, _ := e.signal.(syscall.Signal)
	return exitSignal + int(n)
}
