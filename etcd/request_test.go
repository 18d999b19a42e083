package etcd_test

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest/enginetest"
)

// A lock that nobody else wants takes one transaction, and its release another. One that was found
// held is looked at first, and nothing is written, until it is found free.
func TestTransactions(t *testing.T) {
	t.Parallel()
	c, prefix := common(t), enginetest.Root(t)
	w := newWire(t, c, prefix)
	client, other := w.open(t), newWire(t, c, prefix).open(t)
	sends := func(what string, want int64, f func() error, errWant error) {
		t.Helper()
		before := w.sent.Load()
		if err := f(); !errors.Is(err, errWant) {
			t.Fatalf("%s: %v", what, err)
		}
		if sent := w.sent.Load() - before; sent != want {
			t.Errorf("%s: %d transactions, want %d", what, sent, want)
		}
	}
	var lock *redlatch.Lock
	try := func() (err error) {
		lock, err = client.TryLock(t.Context(), "name")
		return err
	}
	unlock := func() error { return lock.Unlock(t.Context()) }
	for range 2 {
		sends("lock", 1, try, nil)
		sends("unlock", 1, unlock, nil)
	}
	held := enginetest.Lock(t, other, "name")
	sends("lock what is held", 1, try, redlatch.ErrHeld)
	w.spoil(func(context.Context, commit) (*clientv3.TxnResponse, error) { return nil, errors.New("it writes") })
	sends("lock what was found held", 1, try, redlatch.ErrHeld)
	w.fault.Store(nil)
	enginetest.Unlock(t, held)
	sends("lock what was found held before", 2, try, nil)
	sends("unlock", 1, unlock, nil)
	sends("lock what was found free", 1, try, nil)
	sends("unlock", 1, unlock, nil)
}
