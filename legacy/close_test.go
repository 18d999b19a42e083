package legacy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/legacy"
)

// A caller of a Locker that is closed learns just that, whether or not it had a connection.
func TestUseAfterClose(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	fresh, used, waiting := open(t, server.URL()), open(t, server.URL()), open(t, server.URL())
	lock, before := try(t, used, "foo"), asked(t, server)
	waited := make(chan error, 1)
	go func() { _, err := waiting.Lock(t.Context(), "foo"); waited <- err }()
	await(t, "it is asked for", func() bool { return asked(t, server) >= before+2 })
	calls := map[string]func() error{
		"TryLock":                  func() error { _, err := used.TryLock(t.Context(), "bar"); return err },
		"Lock":                     func() error { _, err := used.Lock(t.Context(), "bar"); return err },
		"TryLock before any other": func() error { _, err := fresh.TryLock(t.Context(), "bar"); return err },
		"a Lock that waits":        func() error { return <-waited },
		"Extend":                   func() error { return lock.Extend(t.Context()) },
	}
	for _, l := range []*legacy.Locker{fresh, used, waiting, used} {
		l.Close()
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, redlatch.ErrClosed) || errors.Is(err, redlatch.ErrNoQuorum) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if lock.Err() != nil {
		t.Errorf("the lock is not held: %v", lock.Err())
	}
	if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrClosed) {
		t.Errorf("Unlock: %v", err)
	}
}

// An old lock is on one server. Through one node of a Cluster only some names could be locked.
func TestClusterIsRefused(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://127.0.0.1:1?cluster", "redis://127.0.0.1:1?addr=127.0.0.1:2"} {
		l, err := legacy.Open(legacy.Config{URL: url, Timeout: timeout})
		if err == nil {
			l.Close()
		}
		if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "Cluster") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
