// Package invoices is a program that locks, so that docs/guides/testing.md can say how it is tested: on a
// client in memory, on miniredis, and on servers.
package invoices

import (
	"context"

	"github.com/redlatch/redlatch"
)

// Charger has each invoice paid by one machine at a time.
type Charger struct {
	Locks redlatch.Locker // a *redlatch.Client; in tests also a *redlatchtest.Client
	Pay   func(ctx context.Context, id string) error
}

// Charge has the invoice paid, or returns redlatch.ErrHeld while another machine is at it.
func (c *Charger) Charge(ctx context.Context, id string) error {
	return c.Locks.TryDo(ctx, "invoice/"+id, func(ctx context.Context) error {
		return c.Pay(ctx, id)
	})
}
