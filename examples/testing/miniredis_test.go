package invoices

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/redlatch/redlatch"
)

// startMiniredis returns the URL of a miniredis that can hold locks.
func startMiniredis(t *testing.T) string {
	t.Helper()
	m := miniredis.RunT(t)
	m.ClockTTL(true) // else keys expire by FastForward only
	// What a server is told from others by, 40 characters.
	id := strings.Repeat("0", 40-len(m.Port())) + m.Port()
	m.Server().SetPreHook(func(c *server.Peer, command string, _ ...string) bool {
		switch command {
		case "INFO": // of which it lacks the sections that tell one server from another
			c.WriteBulk("redis_version:7.0.0\r\nrole:master\r\nrun_id:" + id + "\r\nmaster_replid:" + id + "\r\n")
		case "SUBSCRIBE": // after which it takes no other command; without it, waiters look every 30 ms
			c.WriteError("ERR not supported")
		default:
			return false
		}
		return true
	})
	return "redis://" + m.Addr()
}

func TestOnMiniredis(t *testing.T) {
	t.Parallel()
	config := redlatch.Config{
		Nodes: []string{startMiniredis(t), startMiniredis(t), startMiniredis(t)}, // or one
		// They have just been started, and have forgotten nothing.
		NoQuarantine: true,
		// The most there is: many tests at once make a machine slow.
		NodeTimeout: time.Second,
	}
	chargeFromTwoMachines(t, open(t, config), open(t, config))
}

// open opens a client that is closed after the test.
func open(t *testing.T, config redlatch.Config) *redlatch.Client {
	t.Helper()
	client, err := redlatch.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// chargeFromTwoMachines has two machines, each with its client, charge one invoice at the same
// time.
func chargeFromTwoMachines(t *testing.T, one, two redlatch.Locker) {
	t.Helper()
	paid := 0
	other := &Charger{Locks: two, Pay: func(context.Context, string) error { t.Error("paid twice"); return nil }}
	c := &Charger{Locks: one, Pay: func(ctx context.Context, id string) error {
		paid++
		if err := chargeInTime(ctx, other, id, redlatch.ErrHeld); !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("the other machine: %v", err)
		}
		return nil
	}}
	if err := chargeInTime(t.Context(), c, "42", nil); err != nil || paid != 1 {
		t.Errorf("%v, paid %d times", err, paid)
	}
}

// chargeInTime charges until that ends with want. On a machine that runs many tests at once servers
// answer too late, and what a try has left there is in the way until it is released.
func chargeInTime(ctx context.Context, c *Charger, id string, want error) error {
	for deadline := time.Now().Add(40 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err := c.Charge(ctx, id); errors.Is(err, want) || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
	}
}
