package locking

import (
	"os"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Settings that make two keys of one name make two locks of it, and no server can tell: the page of
// settings says of each that all clients must have the same.
func TestSettingsOfTheKey(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	same, _, _ := strings.Cut(string(text), "\n| field")
	server := redistest.New(t)
	c := locktest.Config(server.URL())
	lock := locktest.TryLock(t, locktest.Open(t, c), "job")
	for what, differ := range map[string]func(*redlatch.Config){
		"`KeyTemplate`": func(c *redlatch.Config) { c.KeyTemplate = "lock:{name}" },
		"database":      func(c *redlatch.Config) { c.Nodes = []string{strings.Replace(c.Nodes[0], "#", "/1#", 1)} },
	} {
		other := c
		differ(&other)
		beside := locktest.TryLock(t, locktest.Open(t, other), "job")
		if lock.Err() == nil && beside.Err() == nil && !strings.Contains(same, what) {
			t.Errorf("two clients hold the lock, as they differ in %s, and docs/config.md does not say that all must have the same", what)
		}
		locktest.Unlock(t, beside)
	}
}
