//go:build !unix

package main

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
)

// runCmd is `redlatch run`, which needs process groups.
type runCmd struct {
	Arguments []string `arg:"" optional:"" passthrough:""`
}

func (*runCmd) Run(*printer) error {
	return &outcome{code: exitSystem, err: fmt.Errorf("redlatch run: %w on %s: it needs process groups", errors.ErrUnsupported, runtime.GOOS)}
}

// lockCmd is `redlatch lock`, which needs the signals of Unix to end its wait.
type lockCmd struct {
	Arguments []string `arg:"" optional:"" passthrough:""`
}

func (*lockCmd) Run(*printer) error {
	return &outcome{code: exitSystem, err: fmt.Errorf("redlatch lock: %w on %s", errors.ErrUnsupported, runtime.GOOS)}
}

type guardCmd struct{}

func (*guardCmd) Run(*printer) error { return errors.ErrUnsupported }

type parentCmd struct{}

func (*parentCmd) Run(*printer) error { return errors.ErrUnsupported }

func dieOf(syscall.Signal) {}
