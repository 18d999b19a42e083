package invoices

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/redlatch/redlatch"
)

// startContainer returns the URL of a server in a container, and skips the test where there is no
// engine to start one.
func startContainer(t *testing.T) string {
	t.Helper()
	testcontainers.SkipIfProviderIsNotHealthy(t)
	container, err := testcontainers.Run(t.Context(), "valkey/valkey:8.0",
		testcontainers.WithExposedPorts("6379/tcp"),
		testcontainers.WithWaitStrategy(wait.ForListeningPort("6379/tcp")))
	testcontainers.CleanupContainer(t, container)
	if err != nil {
		t.Fatal(err)
	}
	url, err := container.PortEndpoint(t.Context(), "6379/tcp", "redis")
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// testServers are the URLs of the servers that CI has started, or of one in a container.
func testServers(t *testing.T) []string {
	t.Helper()
	if nodes := os.Getenv("REDLATCH_TEST_NODES"); nodes != "" {
		return strings.Split(nodes, ",")
	}
	return []string{startContainer(t)}
}

func TestOnServers(t *testing.T) {
	config := redlatch.Config{Nodes: testServers(t), NodeTimeout: time.Second}
	client := open(t, config)
	for _, node := range config.Nodes {
		// Else a server that has just been started does not vote for MaxTTL and 4 s.
		if err := client.Admit(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	chargeFromTwoMachines(t, client, open(t, config))
}
