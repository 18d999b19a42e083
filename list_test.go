package redlatch_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/vote"
)

// mute is a store that cannot say who has a lock or waits for it.
type mute struct{ hook.Store }

func (mute) Name() string                  { return "mute" }
func (mute) Connect(context.Context) error { return nil }
func (mute) Err() error                    { return nil }
func (mute) Reached() bool                 { return true }
func (mute) Cut()                          {}
func (mute) Close()                        {}

func (mute) Look(context.Context, string) (vote.Answer, []string) { return vote.Answer{}, nil }
func (mute) Keys(context.Context) ([]string, vote.Answer)         { return nil, vote.Answer{} }

// openMute opens a client of a store that cannot say anything, until the test is over.
func openMute(t *testing.T) *redlatch.Client {
	t.Helper()
	return locktest.OpenIn(t, redlatch.Config{}, hook.Surroundings{Nodes: []hook.Node{{
		Name: "mute", Store: func(func(key string)) hook.Store { return mute{} },
	}}})
}

// In a store, too, the error of Waiters has the name of the lock, and that of List has none.
func TestNameOfAFailedLook(t *testing.T) {
	t.Parallel()
	client := openMute(t)
	_, ofOne := client.Waiters(t.Context(), "job")
	_, _, ofAll := client.List(t.Context(), "*")
	for want, err := range map[string]error{"job": ofOne, "": ofAll} {
		if failure, ok := errors.AsType[*redlatch.QuorumError](err); !ok || failure.Name != want {
			t.Errorf("%v, want one of %q", err, want)
		}
	}
}
