//go:build !unix

package main

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"
)

// runCmd is `redlatch run`, which needs process groups.
type runCmd struct{}

func (*runCmd) line() *cobra.Command { return anyLine("run", "Run a command while holding a lock.") }

func (*runCmd) Run(*printer) error {
	return &outcome{code: exitSystem, err: fmt.Errorf("redlatch run: %w on %s: it needs process groups", errors.ErrUnsupported, runtime.GOOS)}
}

// lockCmd is `redlatch lock`, which needs the signals of Unix to end its wait.
type lockCmd struct{}

func (*lockCmd) line() *cobra.Command {
	return anyLine("lock", "Take a lock and print a handle to extend and unlock it.")
}

func (*lockCmd) Run(*printer) error {
	return &outcome{code: exitSystem, err: fmt.Errorf("redlatch lock: %w on %s", errors.ErrUnsupported, runtime.GOOS)}
}

// anyLine returns a command line that accepts all flags and arguments.
func anyLine(name, short string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true}, Args: cobra.ArbitraryArgs}
}

type guardCmd struct{}

func (*guardCmd) line() *cobra.Command { return &cobra.Command{Use: "guard-process", Hidden: true} }

func (*guardCmd) Run(*printer) error { return errors.ErrUnsupported }

type parentCmd struct{}

func (*parentCmd) line() *cobra.Command { return &cobra.Command{Use: "parent-process", Hidden: true} }

func (*parentCmd) Run(*printer) error { return errors.ErrUnsupported }

func dieOf(syscall.Signal) {}
