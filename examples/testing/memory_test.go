package invoices

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

func TestAnotherMachineIsAtIt(t *testing.T) {
	t.Parallel()
	paid := 0
	locks := redlatchtest.New(t, redlatch.Config{})
	c := Charger{Locks: locks, Pay: func(context.Context, string) error { paid++; return nil }}

	release := locks.HoldByAnother("invoice/42")
	if err := c.Charge(t.Context(), "42"); !errors.Is(err, redlatch.ErrHeld) || paid > 0 {
		t.Errorf("%v, paid %d times", err, paid)
	}
	release()
	if err := c.Charge(t.Context(), "42"); err != nil || paid != 1 {
		t.Errorf("%v, paid %d times", err, paid)
	}
	if held := locks.Held(); len(held) > 0 {
		t.Errorf("not released: %v", held)
	}
}

func TestTheLockIsLostWhilePaying(t *testing.T) {
	t.Parallel()
	locks := redlatchtest.New(t, redlatch.Config{})
	c := Charger{Locks: locks, Pay: func(ctx context.Context, _ string) error {
		locks.Lose("invoice/42")
		return ctx.Err() // what Pay does with a ctx that is done
	}}
	if err := c.Charge(t.Context(), "42"); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("%v", err)
	}
}

func TestPayingTakesLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := redlatchtest.New(t, redlatch.Config{TTL: 10 * time.Second})
		other := Charger{Locks: locks.Peer(redlatch.Config{TTL: 10 * time.Second}), Pay: func(context.Context, string) error {
			t.Error("paid twice")
			return nil
		}}
		c := Charger{Locks: locks, Pay: func(ctx context.Context, id string) error {
			time.Sleep(20 * time.Minute) // no time at all in synctest
			if err := other.Charge(ctx, id); !errors.Is(err, redlatch.ErrHeld) {
				t.Errorf("the other machine: %v", err)
			}
			return ctx.Err()
		}}
		if err := c.Charge(t.Context(), "42"); err != nil {
			t.Error(err)
		}
	})
}

func TestServersAreDownWhilePaying(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := redlatchtest.New(t, redlatch.Config{TTL: 10 * time.Second})
		c := Charger{Locks: locks, Pay: func(ctx context.Context, _ string) error {
			locks.Cut(true)
			<-ctx.Done() // when the lock's validity is over, but for the guard
			return context.Cause(ctx)
		}}
		if err := c.Charge(t.Context(), "42"); !errors.Is(err, redlatch.ErrLost) {
			t.Errorf("cut off while paying: %v", err)
		}
		if err := c.Charge(t.Context(), "43"); !errors.Is(err, redlatch.ErrNoQuorum) {
			t.Errorf("cut off before: %v", err)
		}
	})
}
