//go:build linux

package torture

import (
	"context"
	"net/url"
	"testing"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

// The torture looks for keys, and removes its own, in the database that the URL of a user's node names.
func TestDialsTheDatabase(t *testing.T) {
	node := redistest.New(t, redistest.Options{Password: "secret"})
	for _, db := range []string{"/3", "/3/", "?db=3"} {
		at, err := url.Parse(node.URL() + db)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := (&place{url: at}).dial(t.Context())
		if err != nil {
			t.Errorf("%s: %v", db, err)
			continue
		}
		if _, err := conn.Do("SET", "a", "b"); err != nil {
			t.Error(err)
		}
		conn.Close()
		if keys, err := node.Info("keyspace"); err != nil || keys["db3"] == "" || keys["db0"] != "" {
			t.Errorf("%s: %v, %v", db, keys, err)
		}
	}
}

// A worker that calls while a look is on its way to the node may be the one whose key is found there.
func TestLookIsLaterThanTheCallsBeforeIt(t *testing.T) {
	var called int64
	node := redistest.NewFake(t, "", func(redistest.Command) string {
		called = worker.Now()
		return ":1000\r\n"
	})
	at, err := url.Parse(node.URL())
	if err != nil {
		t.Fatal(err)
	}
	torturer := &torturer{options: Options{Topology: Redlock, Names: 1, prefix: "torture"}}
	keeper := func(ctx context.Context, _ string) (*redistest.Conn, int, error) {
		conn, err := redistest.Dial(ctx, node.Addr())
		return conn, 0, err
	}
	for name, look := range map[string]func() []history.Look{
		"a node":                 func() []history.Look { return torturer.ask(0, &place{url: at}) },
		"one of several servers": func() []history.Look { return lookBy(t.Context(), keeper, []string{"a"}) },
	} {
		looks := look()
		if len(looks) != 1 || !looks[0].Found {
			t.Fatalf("%s: %+v", name, looks)
		}
		if looks[0].At < called {
			t.Errorf("%s: the look counts as earlier than a call that was there before its answer, by %d ns", name, called-looks[0].At)
		}
	}
}
