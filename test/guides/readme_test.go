package guides

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/markdown"
	"github.com/redlatch/redlatch/internal/redistest"
)

// notCalled are the names of the errors of which README.md says that Do has not called its function.
func notCalled(t *testing.T) (names []string) {
	t.Helper()
	blocks, err := markdown.Blocks(root+"/README.md", "go")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		for line := range strings.Lines(b.Text) {
			if code, comment, _ := strings.Cut(line, "//"); strings.HasPrefix(code, "case ") && strings.Contains(comment, "so charge was not called") {
				names = append(names, regexp.MustCompile(`redlatch\.Err\w+`).FindAllString(code, -1)...)
			}
		}
	}
	if len(names) == 0 {
		t.Fatal("README.md does not say of any error that charge was not called")
	}
	return names
}

// README.md does not say of a call whose release failed that the function was not called: whoever
// believed that would charge twice.
func TestReadmeOnErrorsOfDo(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	c := locktest.Config(locktest.ProxyURLs(proxies)...)
	c.NodeTimeout = 200 * time.Millisecond
	client := locktest.Open(t, c)
	locktest.Unlock(t, locktest.TryLock(t, client, t.Name()+"/before")) // all nodes answer
	charged := false
	err := client.Do(locktest.Within(t, locktest.Patience), t.Name(), func(context.Context) error {
		charged = true
		for _, p := range proxies {
			p.BlackHole(redistest.Both, true)
		}
		return nil
	})
	for _, n := range nodes {
		locktest.Do(t, n, "DEL", t.Name()) // for the next run on these servers
	}
	if !charged || !errors.Is(err, redlatch.ErrNoQuorum) || locktest.FailureOf(t, err).Op != "unlock" {
		t.Fatalf("charged: %t, and then %v", charged, err)
	}
	for _, name := range notCalled(t) {
		of, known := map[string]error{
			"redlatch.ErrHeld": redlatch.ErrHeld, "redlatch.ErrNoQuorum": redlatch.ErrNoQuorum, "redlatch.ErrNotAdmitted": redlatch.ErrNotAdmitted,
		}[name]
		if !known || errors.Is(err, of) {
			t.Errorf("charge was called, and README.md says of %s that it was not: %v", name, err)
		}
	}
}
