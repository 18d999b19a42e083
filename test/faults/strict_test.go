package faults

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// logged keeps what is logged.
type logged struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(line)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

// A strict client has nothing to do with a node that may evict locks, until it
// may not any more; another one is told once, however often it is looked at.
func TestEvictingNode(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary, Args: []string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"}})
		proxy := redistest.NewProxy(t, server.Addr())
		var log logged
		lenient := locktest.WithQuarantine(proxy.URL())
		lenient.Logger = slog.New(slog.NewTextHandler(&log, nil))
		strict := lenient
		strict.Strict, strict.Logger = true, nil

		client := locktest.Open(t, lenient)
		locktest.Vouch(t, client, lenient.Nodes...)
		for range 3 {
			if err := locktest.TryUntilAnswered(t, client, "x"); err != nil {
				t.Fatal(err)
			}
			locktest.Do(t, server, "SCRIPT", "FLUSH") // it is looked at again
			proxy.Cut()
		}
		if n := log.count("evict"); n != 1 {
			t.Errorf("logged %d times, want once:\n%s", n, log.buf.String())
		}

		refused := locktest.Open(t, strict)
		if err := refused.Admit(t.Context(), strict.Nodes[0]); err == nil || !strings.Contains(err.Error(), "noeviction") {
			t.Errorf("Admit: got %v, want it refused because of maxmemory-policy", err)
		}
		err := locktest.TryUntilAnswered(t, refused, "x")
		if !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "noeviction") {
			t.Errorf("got %v, want ErrRefused and the remedy", err)
		}
		locktest.Do(t, server, "CONFIG", "SET", "maxmemory-policy", "noeviction")
		locktest.Await(t, "it votes again", func() bool { return locktest.TryUntilAnswered(t, refused, "x") == nil })
	})
}

// A node may begin to evict long after the client first saw it.
func TestNodeThatBeginsToEvictIsLogged(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	var log logged
	c := locktest.WithQuarantine(server.URL())
	c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	client := locktest.Open(t, c)
	locktest.Vouch(t, client, c.Nodes...)
	locktest.Do(t, server, "CONFIG", "SET", "maxmemory", "100mb")
	locktest.Do(t, server, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	locktest.Do(t, server, "SCRIPT", "FLUSH") // it is looked at again
	if err := locktest.TryUntilAnswered(t, client, "x"); err != nil {
		t.Fatal(err)
	}
	if n := log.count("evict"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
}
