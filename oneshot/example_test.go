package oneshot_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// One process takes a lock and another releases it, by the id that they share.
func Example() {
	server, err := redistest.StartNodes(context.Background(), 1, redistest.Options{})
	if err != nil {
		panic(err)
	}
	defer server[0].Close()
	client, err := redlatch.Open(redlatch.Config{
		Nodes:        redistest.URLs(server),
		NodeTimeout:  time.Second,
		NoQuarantine: true, // this server has only just started
	})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx, shots := context.Background(), oneshot.New(client)

	fmt.Println(shots.Take(ctx, "upload/7", "session-f31c", 20*time.Second))
	fmt.Println(shots.Take(ctx, "upload/7", "session-90ab", 20*time.Second))
	id, _, err := shots.Query(ctx, "upload/7")
	fmt.Println(id, err)
	fmt.Println(shots.Release(ctx, "upload/7", "session-f31c"))
	// Output:
	// true <nil>
	// false <nil>
	// session-f31c <nil>
	// true <nil>
}
