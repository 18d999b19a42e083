package locktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch"
)

// Events is a redlatch.Observer that keeps what it is told.
type Events struct {
	// Client, once there is one, is asked for its Stats at each event, as an Observer may.
	Client atomic.Pointer[redlatch.Client]

	mu  sync.Mutex // guards what follows
	all []redlatch.Event
	ctx []context.Context
}

// Observe keeps an event.
func (e *Events) Observe(ctx context.Context, event redlatch.Event) {
	if client := e.Client.Load(); client != nil {
		client.Stats()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all, e.ctx = append(e.all, event), append(e.ctx, ctx)
}

// Values are what the contexts of the events have for key.
func (e *Events) Values(key any) []any {
	e.mu.Lock()
	defer e.mu.Unlock()
	values := make([]any, len(e.ctx))
	for i, ctx := range e.ctx {
		values[i] = ctx.Value(key)
	}
	return values
}

// Kinds are the names of the events' types, in order.
func (e *Events) Kinds() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	kinds := make([]string, len(e.all))
	for i, event := range e.all {
		kinds[i] = strings.TrimPrefix(fmt.Sprintf("%T", event), "redlatch.")
	}
	return strings.Join(kinds, " ")
}

// EventsOf returns the events of one type.
func EventsOf[T redlatch.Event](e *Events) []T {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []T
	for _, event := range e.all {
		if event, ok := event.(T); ok {
			found = append(found, event)
		}
	}
	return found
}

// All returns the events, in order.
func (e *Events) All() []redlatch.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}
