package redlatch_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// reasons is a log that notes when it was told why a call waits.
type reasons struct {
	slog.Handler
	told map[error][]time.Time
}

func (*reasons) Enabled(context.Context, slog.Level) bool { return true }

func (r *reasons) Handle(_ context.Context, record slog.Record) error {
	if record.Message != "waiting for the lock" {
		return nil
	}
	record.Attrs(func(a slog.Attr) bool {
		if failure, ok := a.Value.Any().(*redlatch.QuorumError); ok {
			for _, kind := range []error{redlatch.ErrHeld, redlatch.ErrNoQuorum} {
				if errors.Is(failure, kind) {
					r.told[kind] = append(r.told[kind], time.Now())
				}
			}
		}
		return true
	})
	return nil
}

// The log is told of a wait that takes long, and again when there is another reason, but of none of two that alternate
// more than once a minute.
func TestWaitIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &reasons{told: make(map[error][]time.Time)}
		client := redlatchtest.New(t, redlatch.Config{Logger: slog.New(log)})
		if _, err := client.Peer(redlatch.Config{}).TryLock(t.Context(), "name"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		start := time.Now()
		go func() {
			defer close(over)
			_, _ = client.Lock(ctx, "name")
		}()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if held := log.told[redlatch.ErrHeld]; len(held) != 1 || held[0].Sub(start) < time.Second || held[0].Sub(start) > 10*time.Second {
			t.Errorf("it was held, which the log was told at %v since %v", held, start)
		}
		const flips = 30
		for i := range flips {
			client.Cut(i%2 == 0)
			time.Sleep(10 * time.Second)
		}
		cancel()
		<-over
		for kind, at := range log.told {
			if len(at) < 4 || len(at) > 7 {
				t.Errorf("%v: the log was told %d times in five minutes: %v", kind, len(at), at)
			}
			for i := range at[1:] {
				if d := at[i+1].Sub(at[i]); d < time.Minute {
					t.Errorf("%v: the log was told again after %v", kind, d)
				}
			}
		}
		if len(log.told) != 2 {
			t.Errorf("the log was told %v", log.told)
		}
	})
}
