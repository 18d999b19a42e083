package invoices

import (
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
)

// What the guide does on servers that CI has started runs here on three.
func TestOnServersOfCI(t *testing.T) {
	t.Setenv("REDLATCH_TEST_NODES", strings.Join(redistest.URLs(redistest.Nodes(t, 3)), ","))
	TestOnServers(t)
}
