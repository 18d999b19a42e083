package legacy_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/legacy"
)

// A ctx that is nil is refused; Unlock releases all the same.
func TestNilContext(t *testing.T) {
	t.Parallel()
	var none context.Context
	server := redistest.New(t)
	locker := open(t, server.URL())
	held := try(t, locker, "held")
	_, locking := locker.Lock(none, "x")
	_, trying := locker.TryLock(none, "x")
	_, both := legacy.Both(none, locker, nil, "x")
	for what, err := range map[string]error{"Lock": locking, "TryLock": trying, "Extend": held.Extend(none), "Both": both} {
		if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "ctx is nil: pass context.Background()") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, oldless := legacy.Both(t.Context(), nil, new(redlatch.Client), "x")
	_, newless := legacy.Both(t.Context(), locker, nil, "x")
	for what, err := range map[string]error{"Locker": oldless, "Client": newless} {
		if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "Both needs one of each") {
			t.Errorf("Both without a %s: %v", what, err)
		}
	}
	if held.Err() != nil {
		t.Errorf("the lock is %v", held.Err())
	}
	if err := held.Unlock(none); err != nil {
		t.Errorf("unlock: %v", err)
	}
	try(t, open(t, server.URL()), "held")
}
