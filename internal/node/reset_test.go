package node

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
)

// resettable is a connection to a server that notes its quarantine.
type resettable struct {
	moving
	note string
}

func (c *resettable) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	if len(args) > 8 && args[1] == script.Quarantine.Text {
		c.note = args[8]
	}
	return c.moving.Do(ctx, args...)
}

// A reset keeps a node out for as long as a lock may last that was given away under any settings that are recorded,
// there or, since the node may have lost its own, elsewhere.
func TestResetWaitsForTheLongest(t *testing.T) {
	t.Parallel()
	record := func(ttl time.Duration) *admission.Record {
		return &admission.Record{Nodes: map[string]string{"n": "", "o": ""}, MaxTTLMS: ttl.Milliseconds()}
	}
	for _, c := range []struct{ ours, own, other time.Duration }{{0, 1, 2}, {0, 2, 1}, {2, 0, 1}} {
		hours := func(n time.Duration) time.Duration { return (n + 1) * time.Hour }
		conn := &resettable{moving: moving{records: map[int]string{0: record(hours(c.own)).Text()}}}
		census := NewCensus([]string{"n", "o"})
		census.join(1, func(context.Context) (*admission.Record, error) { return record(hours(c.other)), nil })
		n := New(conn, Options{Name: "n", Census: census, Agreement: admission.Agreement{Deployment: "d", Nodes: []string{"n", "o"}, MaxTTL: hours(c.ours)},
			ConnectTimeout: time.Second, Patience: time.Second, Logger: slog.New(slog.DiscardHandler)})
		t.Cleanup(n.Close)
		if err := n.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		note, _ := admission.ParseNote(conn.note)
		if want := admission.NewNote(note.Server, 1, admission.Agreement{MaxTTL: hours(2)}.Quarantine()); note != want {
			t.Errorf("%+v: %q, not %q", c, conn.note, want.Text())
		}
	}
}

// A reset whose ctx ends while another node hangs says so, unless it has met what nobody here can reset.
func TestResetThatEndsWhileOthersAreAsked(t *testing.T) {
	t.Parallel()
	reason := errors.New("the reason")
	for _, other := range []error{nil, admission.ErrLater} {
		ctx, cancel := context.WithCancelCause(t.Context())
		census := NewCensus([]string{"n", "o", "p"})
		census.join(1, func(context.Context) (*admission.Record, error) { return nil, other })
		census.join(2, func(asked context.Context) (*admission.Record, error) {
			cancel(reason)
			<-asked.Done()
			return nil, asked.Err()
		})
		n := New(&resettable{}, Options{Name: "n", Census: census, Agreement: admission.Agreement{Deployment: "d", Nodes: []string{"n", "o", "p"}, MaxTTL: time.Second},
			ConnectTimeout: time.Hour, Patience: time.Second, Logger: slog.New(slog.DiscardHandler)})
		t.Cleanup(n.Close)
		if err := n.Reset(ctx); !errors.Is(err, cmp.Or(other, reason)) {
			t.Errorf("the other says %v: %v", other, err)
		}
	}
}
