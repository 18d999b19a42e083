package redlatch_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redlatch/redlatch"
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
				alone := open(t, config(fake.URL()))
				if _, err := alone.TryLock(within(t, patience), "x"); err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redlatch.ErrHeld) {
					t.Errorf("TryLock: %v", err)
				}
				servers := shared(t, 2)
				client := open(t, config(fake.URL(), servers[0].URL(), servers[1].URL()))
				unlock(t, tryLock(t, client, t.Name()))
			})
		}
	}
}
