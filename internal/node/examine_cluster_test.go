package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
)

// A master is judged by the slot that would keep a name waiting for the longest.
func TestNewestSlot(t *testing.T) {
	held := admission.Slots{{First: 10, Last: 20}, {First: 30, Last: 40}}
	for _, c := range []struct {
		recorded admission.Slots
		want     uint16
	}{
		{nil, 10},
		{admission.Slots{{First: 10, Last: 20, Since: 5}, {First: 30, Last: 40, Since: 5}}, 10},
		{admission.Slots{{First: 10, Last: 20, Since: 5}, {First: 30, Last: 35, Since: 5}, {First: 36, Last: 40, Since: 7}}, 36},
		{admission.Slots{{First: 10, Last: 20, Since: 5}, {First: 30, Last: 32, Since: 9}, {First: 34, Last: 40, Since: 7}}, 33},
	} {
		m := &MasterExamination{Examination: new(Examination), Slots: held}
		if c.recorded != nil {
			m.evidence.record = &admission.Record{Slots: c.recorded}
		}
		if got := m.newest(); got != c.want {
			t.Errorf("recorded %v: %d, want %d", c.recorded, got, c.want)
		}
	}
}

// member is a connection to the only master of a Cluster.
type member struct {
	scripted
	open *atomic.Int32
}

func (c *member) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	text := func(s string) driver.Reply { return driver.Reply{Kind: driver.Text, Text: s} }
	array := func(r ...driver.Reply) driver.Reply { return driver.Reply{Kind: driver.Array, Array: r} }
	switch {
	case args[0] == "CLUSTER" && args[1] == "NODES":
		return text("a 127.0.0.1:1@2 myself,master - 0 0 1 connected 0-16383\n"), nil
	case args[0] == "CLUSTER" && args[1] == "SLOTS":
		number := func(n int64) driver.Reply { return driver.Reply{Kind: driver.Int, Int: n} }
		return array(array(number(0), number(16383), array(text("127.0.0.1"), number(1), text("a")))), nil
	}
	return c.scripted.Do(ctx, args...)
}

func (c *member) Close() { c.open.Add(-1) }

// A look at a Cluster leaves no connection to its masters behind, and spares the Cluster's own.
func TestLookAtAClusterClosesItsConnections(t *testing.T) {
	t.Parallel()
	var open, own atomic.Int32
	own.Add(1)
	c := NewCluster(&member{open: &own}, Options{
		Name: "c", Census: NewCensus([]string{"c"}), Agreement: admission.Agreement{Deployment: "d", Nodes: []string{"c"}, MaxTTL: time.Second},
		ConnectTimeout: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	dialled := 0
	x := c.Look(t.Context(), []string{"127.0.0.1:1"}, func(string) (driver.Conn, error) {
		dialled++
		open.Add(1)
		return &member{open: &open}, nil
	}, nil)
	if len(x.Masters) != 1 || dialled != 2 || open.Load() != 0 || own.Load() != 1 {
		t.Errorf("%d masters, %v; %d connections made, %d of them open; %d of the Cluster's open", len(x.Masters), x.Err, dialled, open.Load(), own.Load())
	}
	if c.Close(); own.Load() != 0 {
		t.Errorf("closed: %d of the Cluster's connections open", own.Load())
	}
}

// saying is what a server of a Cluster says of its only master.
type saying struct {
	nodes    string
	host, id string
	silent   bool
}

// sayer is a connection to such a server.
type sayer struct {
	member
	saying
}

func (c *sayer) Do(ctx context.Context, args ...string) (driver.Reply, error) {
	text := func(s string) driver.Reply { return driver.Reply{Kind: driver.Text, Text: s} }
	array := func(r ...driver.Reply) driver.Reply { return driver.Reply{Kind: driver.Array, Array: r} }
	switch {
	case c.silent:
		<-ctx.Done()
		return driver.Reply{}, ctx.Err()
	case args[0] == "CLUSTER" && args[1] == "NODES":
		return text(c.nodes), nil
	case args[0] == "CLUSTER" && args[1] == "SLOTS":
		number := func(n int64) driver.Reply { return driver.Reply{Kind: driver.Int, Int: n} }
		return array(array(number(0), number(16383), array(text(c.host), number(7), text(c.id)))), nil
	}
	return c.member.Do(ctx, args...)
}

// Where a Cluster's masters are found is what the seed says, on the seed's own host if it names none; a seed
// that does not tell of all is not believed.
func TestAddressesOfAClustersMasters(t *testing.T) {
	t.Parallel()
	const nodes = "a 127.0.0.1:1@2 myself,master - 0 0 1 connected 0-16383\n"
	for name, test := range map[string]struct {
		says saying
		want string
		err  error
	}{
		"a host":    {saying{nodes: nodes, host: "10.0.0.9", id: "a"}, "10.0.0.9:7", nil},
		"no host":   {saying{nodes: nodes, id: "a"}, "10.0.0.1:7", nil},
		"another":   {saying{nodes: nodes, host: "10.0.0.9", id: "b"}, "", errAmidChange},
		"none":      {saying{nodes: "a 127.0.0.1:1@2 myself,master - 0 0 1 connected\n", host: "10.0.0.9", id: "a"}, "", errNoMasters},
		"no answer": {saying{silent: true}, "", errNoAnswer},
	} {
		var open atomic.Int32
		c := NewCluster(&member{open: &open}, Options{
			Name: "c", Census: NewCensus([]string{"c"}), Agreement: admission.Agreement{Deployment: "d", Nodes: []string{"c"}, MaxTTL: time.Second},
			ConnectTimeout: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		})
		x := c.Look(t.Context(), []string{"10.0.0.1:1"}, func(string) (driver.Conn, error) {
			return &sayer{member{open: &open}, test.says}, nil
		}, nil)
		c.Close()
		if test.err != nil {
			if !errors.Is(x.Err, test.err) || len(x.Masters) != 0 {
				t.Errorf("%s: %v, %d masters", name, x.Err, len(x.Masters))
			}
		} else if len(x.Masters) != 1 || x.Masters[0].Address != test.want {
			t.Errorf("%s: %v, %d masters", name, x.Err, len(x.Masters))
		}
	}
}

// deaf is a connection to a Cluster whose user may not subscribe in a slot.
type deaf struct{ member }

func (*deaf) SubscribeShard(context.Context, string, func(), func(string)) error {
	return &driver.ServerError{Text: "NOPERM User me has no permissions to run the 'ssubscribe' command"}
}

// Whether waiters can listen is found out by the way in which they do.
func TestLookAtAClusterTriesToListen(t *testing.T) {
	t.Parallel()
	var open atomic.Int32
	c := NewCluster(&deaf{member{open: &open}}, Options{
		Name: "c", Census: NewCensus([]string{"c"}), Agreement: admission.Agreement{Deployment: "d", Nodes: []string{"c"}, MaxTTL: time.Second},
		ConnectTimeout: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	defer c.Close()
	x := c.Look(t.Context(), []string{"127.0.0.1:1"}, func(string) (driver.Conn, error) { return &member{open: &open}, nil }, nil)
	if len(x.Masters) != 1 || !slices.Contains(x.Masters[0].Missing, "+ssubscribe") {
		t.Errorf("%+v", x)
	}
}
