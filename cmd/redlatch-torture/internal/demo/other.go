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

// Run fails on this system.
func Run(context.Context, Options) (*Result, error) { return nil, errUnsupported }

// Work fails on this system.
func Work(io.Reader, io.Writer) error { return errUnsupported }

// Serve fails on this system.
func Serve(io.Reader, io.Writer) error { return errUnsupported }
