package drivertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
)

// subscription is a subscription of the subject that is under way.
type subscription struct {
	ready chan struct{}
	heard chan string
	ended chan error
}

func subscribe(ctx context.Context, l driver.Listener, channel string) *subscription {
	s := &subscription{ready: make(chan struct{}), heard: make(chan string, 1000), ended: make(chan error, 1)}
	go func() {
		s.ended <- l.Subscribe(ctx, channel, sync.OnceFunc(func() { close(s.ready) }), func(message string) { s.heard <- message })
	}()
	return s
}

// listening subscribes until that succeeds: just after a connection broke it may not.
func listening(t *testing.T, ctx context.Context, l driver.Listener, channel string) *subscription {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		s := subscribe(ctx, l, channel)
		select {
		case <-s.ready:
			return s
		case err := <-s.ended:
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		case <-time.After(patience):
			t.Fatal("a subscription neither stands nor fails")
		}
	}
}

// end expects the subscription to end.
func (s *subscription) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(patience):
		t.Fatal("a subscription goes on")
		return nil
	}
}

// hears publishes messages and expects the subscription to hear them in order, each once.
func (s *subscription) hears(t *testing.T, publish func(message string)) {
	t.Helper()
	const many = 100
	for i := range many {
		publish(fmt.Sprint("message ", i))
	}
	for i := range many {
		select {
		case m := <-s.heard:
			if m != fmt.Sprint("message ", i) {
				t.Fatalf("message %d is %q", i, m)
			}
		case err := <-s.ended:
			t.Fatal(err)
		case <-time.After(patience):
			t.Fatalf("message %d does not come", i)
		}
	}
}

func (r *run) listener(t *testing.T) driver.Listener {
	t.Helper()
	l, ok := r.conn.(driver.Listener)
	if !ok {
		t.Skip("its server does not speak first")
	}
	return l
}

func (r *run) publish(t *testing.T, channel string) func(message string) {
	return func(message string) {
		t.Helper()
		r.direct(t, "PUBLISH", channel, message)
	}
}

// Messages are heard in order until ctx is done, beside commands.
func hears(t *testing.T, r *run) {
	l := r.listener(t)
	cause := errors.New("the caller's own cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	s := listening(t, ctx, l, "here")
	r.direct(t, "PUBLISH", "elsewhere", "to nobody")
	s.hears(t, r.publish(t, "here"))
	r.warm(t)
	cancel(cause)
	if err := s.end(t); !errors.Is(err, cause) && !errors.Is(err, context.Canceled) {
		t.Errorf("ctx was done: %v", err)
	}
	listening(t, t.Context(), l, "here").hears(t, r.publish(t, "here"))
}

// A subscription ends with its connection, so that nobody relies on it, and the next one stands.
func hearsUntilCut(t *testing.T, r *run) {
	l := r.listener(t)
	for range 3 {
		s := listening(t, t.Context(), l, "here")
		r.Proxy.Cut()
		if err := s.end(t); err == nil {
			t.Error("a subscription broke without an error")
		}
		listening(t, t.Context(), l, "here").hears(t, r.publish(t, "here"))
	}
}

// A user who may not listen is told so in the server's words.
func hearsUnlessDenied(t *testing.T, r *run) {
	l := r.listener(t)
	r.direct(t, "ACL", "SETUSER", "default", "-subscribe")
	err := sends(func() error { return subscribe(t.Context(), l, "here").end(t) })
	if refusal, ok := errors.AsType[*driver.ServerError](err); !ok || !refusal.Unable() {
		t.Errorf("denied: %v", err)
	}
	r.warm(t)
}

// Close ends a subscription, and none stands after it.
func hearsUntilClose(t *testing.T, r *run) {
	l := r.listener(t)
	s := listening(t, t.Context(), l, "here")
	r.conn.Close()
	if err := s.end(t); err == nil {
		t.Error("a subscription was closed without an error")
	}
	if err := subscribe(t.Context(), l, "here").end(t); err == nil {
		t.Error("a closed connection subscribed without an error")
	}
}
