package guides

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// openOne opens a client of one server that holds other data, too.
func openOne() (*redlatch.Client, error) {
	return redlatch.Open(redlatch.Config{
		Nodes:       []string{os.Getenv("REDLATCH_NODES")},
		KeyTemplate: "lock:{name}",
		MaxTTL:      10 * time.Second, // for all clients: after a restart there are no locks for 14 s
		Strict:      true,             // refuse a server that may delete locks to make room
		Logger:      slog.Default(),   // lost locks, and servers that do not vote yet
	})
}

// openFive opens a client of five servers in two rooms, some milliseconds apart.
func openFive() (*redlatch.Client, error) {
	return redlatch.Open(redlatch.Config{
		Nodes:       strings.Split(os.Getenv("REDLATCH_NODES"), ","),
		TTL:         10 * time.Second,
		MaxTTL:      30 * time.Second,
		NodeTimeout: 100 * time.Millisecond,
		Strict:      true,
		Logger:      slog.Default(),
	})
}

// quiet has nothing of what a client logs among what the tests print.
func quiet(t *testing.T) {
	before := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	t.Cleanup(func() { slog.SetDefault(before) })
}

// There is a lock to be had from a client that was opened as the page says, under the page's key,
// and none from a server that may evict it.
func TestOpenOne(t *testing.T) {
	quiet(t)
	server := redistest.New(t)
	t.Setenv("REDLATCH_NODES", server.URL())
	client, err := openOne()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	locktest.Vouch(t, client, server.URL())
	lock := locktest.TryLock(t, client, "job")
	if locktest.Value(t, server, "lock:job") == "" {
		t.Error("the key is not that of the template")
	}
	locktest.Unlock(t, lock)

	evicting := redistest.New(t, redistest.Options{Args: []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}})
	t.Setenv("REDLATCH_NODES", evicting.URL())
	strict, err := openOne()
	if err != nil {
		t.Fatal(err)
	}
	defer strict.Close()
	if err := locktest.TryUntilAnswered(t, strict, "job"); !errors.Is(err, redlatch.ErrRefused) {
		t.Errorf("on a server that may evict it: %v", err)
	}
}

// Of five servers two may hang.
func TestOpenFive(t *testing.T) {
	quiet(t)
	servers := redistest.Nodes(t, 5)
	urls := redistest.URLs(servers)
	t.Setenv("REDLATCH_NODES", strings.Join(urls, ","))
	client, err := openFive()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	locktest.Vouch(t, client, urls...)
	for _, s := range servers[:2] {
		if err := s.Pause(); err != nil {
			t.Fatal(err)
		}
	}
	locktest.Unlock(t, locktest.TryLock(t, client, "job"))
}
