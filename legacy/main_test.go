package legacy_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/legacy"
)

// patience bounds what must happen; it says nothing about how fast.
const patience = 40 * time.Second

// timeout is longer than patience: what is gone when that has been waited for was deleted.
const timeout = time.Minute

func open(t *testing.T, url string) *legacy.Locker {
	t.Helper()
	return openFor(t, url, timeout)
}

func openFor(t *testing.T, url string, timeout time.Duration) *legacy.Locker {
	t.Helper()
	l, err := legacy.Open(legacy.Config{URL: url, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func try(t *testing.T, l *legacy.Locker, name string) *legacy.Lock {
	t.Helper()
	lock, err := l.TryLock(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func do(t *testing.T, s *redistest.Server, args ...string) any {
	t.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return reply
}

// expire gives the key a time that is past, as of a holder that crashed.
func expire(t *testing.T, s *redistest.Server, key string) {
	t.Helper()
	do(t, s, "SET", key, strconv.FormatInt(time.Now().Unix()-10, 10))
}

// expires returns the time in the key.
func expires(t *testing.T, s *redistest.Server, key string) int64 {
	t.Helper()
	text, _ := do(t, s, "GET", key).(string)
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s is %q", key, text)
	}
	return at
}

func await(t *testing.T, what string, check func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !check(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("after %v still not: %s", patience, what)
		}
	}
}

func isHeld(t *testing.T, l *legacy.Locker, name string) {
	t.Helper()
	if lock, err := l.TryLock(t.Context(), name); lock != nil || !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("%s: held anew: %t, %v", name, lock != nil, err)
	}
}

// asked returns how often the server was asked for a lock.
func asked(t *testing.T, s *redistest.Server) int {
	t.Helper()
	info, err := s.Info("commandstats")
	if err != nil {
		t.Fatal(err)
	}
	calls, _, _ := strings.Cut(strings.TrimPrefix(info["cmdstat_setnx"], "calls="), ",")
	n, _ := strconv.Atoi(calls)
	return n
}

// givesUp has lock wait for what is held, as the server sees, and its ctx end then. It returns lock's error.
func givesUp(t *testing.T, s *redistest.Server, lock func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	ended, before := make(chan error, 1), asked(t, s)
	go func() { ended <- lock(ctx) }()
	await(t, "it is asked for again", func() bool { return asked(t, s) >= before+2 })
	cancel(errGaveUp)
	return <-ended
}

var errGaveUp = errors.New("gave up")
