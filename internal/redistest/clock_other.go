//go:build !linux

package redistest

import (
	"context"
	"errors"
	"fmt"
	"time"
)

type wallClock struct{}

func newWallClock(context.Context, string) (*wallClock, error) {
	return nil, fmt.Errorf("Options.ClockShim needs Linux: %w", errors.ErrUnsupported)
}

func (*wallClock) step(time.Duration) {}

func (*wallClock) env() []string { return nil }

func (*wallClock) close() error { return nil }
