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

// patience bounds what must happen; it says nothing about how fast.
const patience = 20 * time.Second

// lacking returns the clients of two machines, of a miniredis without one of the lines of
// startMiniredis.
func lacking(t *testing.T, what string) (one, two *redlatch.Client) {
	t.Helper()
	m := miniredis.RunT(t)
	m.ClockTTL(what != "ClockTTL")
	id := strings.Repeat("0", 40)
	m.Server().SetPreHook(func(c *server.Peer, command string, _ ...string) bool {
		switch {
		case command == "INFO" && what != command:
			c.WriteBulk("redis_version:7.0.0\r\nrole:master\r\nrun_id:" + id + "\r\nmaster_replid:" + id + "\r\n")
		case command == "SUBSCRIBE" && what != command:
			c.WriteError("ERR not supported")
		default:
			return false
		}
		return true
	})
	config := redlatch.Config{Nodes: []string{"redis://" + m.Addr()}, NoQuarantine: true, NodeTimeout: time.Second}
	return open(t, config), open(t, config)
}

// waitFor has two wait for what one holds and releases.
func waitFor(t *testing.T, one, two *redlatch.Client) error {
	t.Helper()
	lock, err := one.TryLock(t.Context(), "a")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	next, err := two.Lock(ctx, "a", redlatch.WithWaitReport(func(error) { _ = lock.Unlock(ctx) }))
	if err != nil {
		return err
	}
	return next.Unlock(ctx)
}

// expire has one leave a lock behind, and two wait for it until its TTL is over.
func expire(t *testing.T, one, two *redlatch.Client) error {
	t.Helper()
	return expireWithin(t, one, two, patience)
}

// neverExpire is expire where the key stays: it waits for twice the TTL.
func neverExpire(t *testing.T, one, two *redlatch.Client) error {
	t.Helper()
	return expireWithin(t, one, two, 2*time.Second)
}

func expireWithin(t *testing.T, one, two *redlatch.Client, limit time.Duration) error {
	t.Helper()
	lock, err := one.TryLock(t.Context(), "a", redlatch.WithTTL(time.Second), redlatch.WithoutRenewal())
	if err != nil {
		return err
	}
	if _, err := lock.Detach(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	next, err := two.Lock(ctx, "a")
	if err != nil {
		return err
	}
	return next.Unlock(ctx)
}

// A miniredis can hold locks with all lines of startMiniredis, and each of them is needed.
func TestWhatMiniredisLacks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		without string
		test    func(t *testing.T, one, two *redlatch.Client) error
		want    error
		says    string
	}{
		{"nothing", waitFor, nil, ""},
		{"nothing", expire, nil, ""},
		{"INFO", waitFor, redlatch.ErrRefused, "section (server) is not supported"},
		{"SUBSCRIBE", waitFor, redlatch.ErrRefused, "Can't execute 'evalsha'"},
		{"ClockTTL", neverExpire, redlatch.ErrHeld, ""},
	} {
		t.Run("without "+tt.without, func(t *testing.T) {
			t.Parallel()
			var err error
			for range 10 { // a busy machine may be late, or stand still for longer than the TTL
				one, two := lacking(t, tt.without)
				err = tt.test(t, one, two)
				if errors.Is(err, tt.want) && (err == nil || strings.Contains(err.Error(), tt.says)) {
					return
				}
			}
			t.Errorf("%v, want %v, %q", err, tt.want, tt.says)
		})
	}
}
