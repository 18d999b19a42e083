package faults

import (
	"context"
	"errors"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A server whose replies are none is one that does not answer: the others vote without
// it, and without a quorum there is an error.
func TestMalformedReplies(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]string{
		"negative length": "*-5\r\n",
		"huge length":     "*2147483647\r\n",
		"surplus":         "+OK\r\n+OK\r\n",
		"garbage":         "\x00\xff<html>",
	} {
		for stage, hello := range map[string]string{"set-up": reply, "later": redistest.Helloed} {
			t.Run(name+" at "+stage, func(t *testing.T) {
				t.Parallel()
				fake := redistest.NewFake(t, "", func(c redistest.Command) string {
					if c.Name() == "HELLO" {
						return hello
					}
					return reply
				})
				alone := locktest.Open(t, locktest.Config(fake.URL()))
				if _, err := alone.TryLock(locktest.Within(t, locktest.Patience), "x"); err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redlatch.ErrHeld) {
					t.Errorf("TryLock: %v", err)
				}
				servers := locktest.Shared(t, 2)
				client := locktest.Open(t, locktest.Config(fake.URL(), servers[0].URL(), servers[1].URL()))
				locktest.Unlock(t, locktest.TryLock(t, client, t.Name()))
			})
		}
	}
}
