package drivertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
)

// watcher returns the subject, and a channel on which it tells of changed keys.
func (r *run) watcher(t *testing.T) (w driver.Watcher, changed <-chan string) {
	t.Helper()
	w, ok := r.conn.(driver.Watcher)
	if !ok {
		t.Skip("its server tells of no change")
	}
	told := make(chan string, 100)
	w.OnChange(func(key string) { told <- key })
	return w, told
}

// isTold expects to be told that the key, or any key, may have changed.
func isTold(t *testing.T, what, key string, changed <-chan string) {
	t.Helper()
	select {
	case name := <-changed:
		if name != key && name != "" {
			t.Errorf("%s: %q has changed", what, name)
		}
	case <-time.After(patience):
		t.Errorf("%s: a change is not told", what)
	}
}

// A script or a command that watches is answered like any other. If the subject says that it
// watches, it tells of a change, and also if the connection breaks that would tell of it.
func watches(t *testing.T, r *run) {
	w, changed := r.watcher(t)
	key := r.Key("k")
	script := r.load(t, "return redis.call('GET', KEYS[1])")
	for what, watch := range map[string]func(context.Context) (driver.Reply, bool, error){
		"a script": func(ctx context.Context) (driver.Reply, bool, error) {
			return w.EvalSHAWatching(ctx, script, []string{key}, nil)
		},
		"a command": func(ctx context.Context) (driver.Reply, bool, error) { return w.DoWatching(ctx, "GET", key) },
	} {
		for end, change := range map[string]func(){"deleted": func() { r.direct(t, "DEL", key) }, "cut": r.Proxy.Cut} {
			r.warmAgain(t)
			r.direct(t, "SET", key, "v")
			var reply driver.Reply
			var watched bool
			err := sends(func() (err error) { reply, watched, err = watch(within(t, patience)); return err })
			if err != nil || reply.Text != "v" {
				t.Fatalf("%s: %+v, %v", what, reply, err)
			}
			if !watched {
				t.Log("it does not watch")
				continue
			}
			for len(changed) > 0 {
				<-changed // from the round before
			}
			change()
			isTold(t, what+", "+end, key, changed)
		}
	}
}

// A command that watches is refused like any other.
func watchesWhatIsRefused(t *testing.T, r *run) {
	w, _ := r.watcher(t)
	r.direct(t, "RPUSH", r.Key("k"), "v")
	err := sends(func() error { _, _, err := w.DoWatching(within(t, patience), "GET", r.Key("k")); return err })
	if refusal, ok := errors.AsType[*driver.ServerError](err); !ok || refusal.Code() != "WRONGTYPE" {
		t.Errorf("got %v", err)
	}
}

// Where the user may not have keys watched, the answer comes all the same, with watched false.
func watchesUnlessDenied(t *testing.T, r *run) {
	w, _ := r.watcher(t)
	r.direct(t, "SET", r.Key("k"), "v")
	for _, denied := range []string{"-client|caching", "-client|tracking"} {
		r.direct(t, "ACL", "SETUSER", "default", denied)
		for range 2 {
			var reply driver.Reply
			var watched bool
			err := sends(func() (err error) {
				reply, watched, err = w.DoWatching(within(t, patience), "GET", r.Key("k"))
				return err
			})
			if err != nil || reply.Text != "v" || watched {
				t.Errorf("%s: %+v, %t, %v", denied, reply, watched, err)
			}
		}
	}
}
