//go:build unix

package demo

import (
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// The library works with the embedded server: admission, locks, waiting and tokens.
func TestEmbeddedServer(t *testing.T) {
	listener, err := serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { listener.Close() }()
	address := listener.Addr().String()
	c := config([]string{"redis://" + address + "#1"}, "test")
	c.TTL, c.MaxTTL, c.NodeTimeout = 10*time.Second, 10*time.Second, time.Second // for a busy machine
	client, err := redlatch.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	if _, err := client.TryLock(t.Context(), "a"); !errors.Is(err, redlatch.ErrNotAdmitted) {
		t.Fatalf("a server that has just started: %v, want ErrNotAdmitted", err)
	}
	if err := vouch(t.Context(), client, 1); err != nil {
		t.Fatal(err)
	}
	lock, err := client.TryLock(t.Context(), "a", redlatch.WithoutRenewal(), redlatch.WithTTL(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Extend(t.Context(), 4*time.Second); err != nil {
		t.Error(err)
	}
	if _, err := client.TryLock(t.Context(), "a"); !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("a second holder: %v, want ErrHeld", err)
	}
	// Lock waits until the TTL of the first holder ends.
	second, err := client.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Err(); !errors.Is(err, redlatch.ErrLost) {
		t.Errorf("the first, when a second holds: %v, want ErrLost", err)
	}
	if second.Token() <= lock.Token() {
		t.Errorf("token %d after %d", second.Token(), lock.Token())
	}
	if err := second.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// Keys expire as time passes.
func TestEmbeddedServerExpires(t *testing.T) {
	listener, err := serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := redistest.Dial(t.Context(), listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Do("SET", "a", "1", "PX", "20"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(limit); ; {
		v, err := conn.Do("GET", "a")
		if err != nil {
			t.Fatal(err)
		}
		if v == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a key with a TTL of 20 ms is still there")
		}
	}
}

func TestEmbeddedServerInfo(t *testing.T) {
	runs := map[string]bool{}
	for range 2 {
		listener, err := serve("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		conn, err := redistest.Dial(t.Context(), listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		run, err := conn.Do("EVAL", "return string.match(redis.call('INFO', 'Server'), 'run_id:(%w+)')", "0")
		if err != nil {
			t.Fatal(err)
		}
		id, _ := run.(string)
		if len(id) != 40 || runs[id] {
			t.Errorf("run_id %q: want 40 digits that no other run has", id)
		}
		runs[id] = true
	}
}
