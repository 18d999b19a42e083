package legacy_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/legacy"
)

// A program that moves takes the lock both ways as long as old lockers run.
func ExampleBoth() {
	server, err := redistest.Start(context.Background(), redistest.Options{})
	if err != nil {
		panic(err)
	}
	defer server.Close()
	old, err := legacy.Open(legacy.Config{URL: server.URL(), Timeout: time.Minute})
	if err != nil {
		panic(err)
	}
	defer old.Close()
	client, err := redlatch.Open(redlatch.Config{Nodes: []string{server.URL()}, NodeTimeout: time.Second, NoQuarantine: true})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx := context.Background()

	pair, err := legacy.Both(ctx, old, client, "foo")
	if err != nil {
		panic(err)
	}
	fmt.Println(server.Do("EXISTS", "lock.foo", "foo"))
	fmt.Println(pair.Unlock(ctx))
	// Output:
	// 2 <nil>
	// <nil>
}
