package redlatch_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/redlatch/redlatch"
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
	eachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary, Args: []string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"}})
		proxy := redistest.NewProxy(t, server.Addr())
		var log logged
		lenient := withQuarantine(proxy.URL())
		lenient.Logger = slog.New(slog.NewTextHandler(&log, nil))
		strict := lenient
		strict.Strict, strict.Logger = true, nil

		client := open(t, lenient)
		vouch(t, client, lenient.Nodes...)
		for range 3 {
			if err := tryUntilAnswered(t, client, "x"); err != nil {
				t.Fatal(err)
			}
			do(t, server, "SCRIPT", "FLUSH") // it is looked at again
			proxy.Cut()
		}
		if n := log.count("evict"); n != 1 {
			t.Errorf("logged %d times, want once:\n%s", n, log.buf.String())
		}

		refused := open(t, strict)
		if err := refused.Admit(t.Context(), strict.Nodes[0]); err == nil || !strings.Contains(err.Error(), "noeviction") {
			t.Errorf("Admit: got %v, want it refused because of maxmemory-policy", err)
		}
		err := tryUntilAnswered(t, refused, "x")
		if !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "noeviction") {
			t.Errorf("got %v, want ErrRefused and the remedy", err)
		}
		do(t, server, "CONFIG", "SET", "maxmemory-policy", "noeviction")
		await(t, "it votes again", func() bool { return tryUntilAnswered(t, refused, "x") == nil })
	})
}

// A node may begin to evict long after the client first saw it.
func TestNodeThatBeginsToEvictIsLogged(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	var log logged
	c := withQuarantine(server.URL())
	c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	client := open(t, c)
	vouch(t, client, c.Nodes...)
	do(t, server, "CONFIG", "SET", "maxmemory", "100mb")
	do(t, server, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	do(t, server, "SCRIPT", "FLUSH") // it is looked at again
	if err := tryUntilAnswered(t, client, "x"); err != nil {
		t.Fatal(err)
	}
	if n := log.count("evict"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
}
