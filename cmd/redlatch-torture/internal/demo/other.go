//go:build !unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
)

var errUnsupported = fmt.Errorf("%w on %s: nodes cannot be stopped and continued", errors.ErrUnsupported, runtime.GOOS)

// Run runs the demo, where it can.
func Run(context.Context, Options) (*Result, error) { return nil, errUnsupported }

// Work is the process of one worker.
func Work(io.Reader, io.Writer) error { return errUnsupported }

// Serve is the process of one embedded server.
func Serve(io.Reader, io.Writer) error { return errUnsupported }
