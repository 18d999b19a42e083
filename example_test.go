package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// exampleNodes starts three servers for the examples.
func exampleNodes() (urls []string, stop func()) {
	servers, err := redistest.StartNodes(context.Background(), 3, redistest.Options{})
	if err != nil {
		panic(err)
	}
	return redistest.URLs(servers), func() {
		for _, server := range servers {
			server.Close()
		}
	}
}

// Do runs what must not run twice at once, and ends its ctx when the lock is lost.
func ExampleClient_Do() {
	urls, stop := exampleNodes()
	defer stop()
	client, err := redlatch.Open(redlatch.Config{
		Nodes:        urls,
		NodeTimeout:  time.Second,
		NoQuarantine: true, // these servers have only just started
	})
	if err != nil {
		panic(err)
	}
	defer client.Close()

	err = client.Do(context.Background(), "invoice/42", func(ctx context.Context) error {
		fmt.Println("charging, while it is held:", ctx.Err() == nil)
		return nil
	})
	fmt.Println(err)
	// Output:
	// charging, while it is held: true
	// <nil>
}

// A job that three machines start at the same minute runs on one of them. The others find the lock
// held, even if that machine's clock was ahead and it has finished already.
func ExampleClient_TryDo() {
	urls, stop := exampleNodes()
	defer stop()
	run := func(machine string) {
		client, err := redlatch.Open(redlatch.Config{Nodes: urls, NodeTimeout: time.Second, NoQuarantine: true, Label: machine})
		if err != nil {
			panic(err)
		}
		defer client.Close()
		err = client.TryDo(context.Background(), "report/2026-11-22", func(ctx context.Context) error {
			fmt.Println(machine, "writes the report")
			return nil
		}, redlatch.WithMinHold(20*time.Second)) // longer than the machines' clocks differ
		if errors.Is(err, redlatch.ErrHeld) {
			fmt.Println(machine, "leaves it to another")
		}
	}
	run("web-1")
	run("web-2")
	run("web-3")
	// Output:
	// web-1 writes the report
	// web-2 leaves it to another
	// web-3 leaves it to another
}

// TryLock leaves a job to whoever does it already.
func ExampleClient_TryLock() {
	urls, stop := exampleNodes()
	defer stop()
	client, err := redlatch.Open(redlatch.Config{Nodes: urls, NodeTimeout: time.Second, NoQuarantine: true, Label: "web-3"})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx := context.Background()

	lock, err := client.TryLock(ctx, "nightly-report")
	if err != nil {
		panic(err)
	}
	_, err = client.TryLock(ctx, "nightly-report")
	if failure, ok := errors.AsType[*redlatch.QuorumError](err); ok && errors.Is(err, redlatch.ErrHeld) {
		holder, _, _ := failure.Holder()
		fmt.Println("held by", holder.Label)
	}
	fmt.Println(lock.Unlock(ctx))
	// Output:
	// held by web-3
	// <nil>
}

// An operator vouches for servers that have never been used. Otherwise they would not vote until
// they had been up for longer than any lock that they might have forgotten.
func ExampleClient_Admit() {
	urls, stop := exampleNodes()
	defer stop()
	client, err := redlatch.Open(redlatch.Config{Nodes: urls, NodeTimeout: time.Second})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx := context.Background()

	_, err = client.TryLock(ctx, "invoice/42")
	fmt.Println("before:", errors.Is(err, redlatch.ErrNotAdmitted))
	for _, url := range urls {
		if err := client.Admit(ctx, url); err != nil {
			panic(err)
		}
	}
	lock, err := client.TryLock(ctx, "invoice/42", redlatch.WithTTL(5*time.Second))
	if err != nil {
		panic(err)
	}
	fmt.Println("after:", lock.Name(), lock.Err())
	// Output:
	// before: true
	// after: invoice/42 <nil>
}

// One of several processes leads for as long as its work runs, and the others see which one leads.
func ExampleClient_Campaign() {
	urls, stop := exampleNodes()
	defer stop()
	client, err := redlatch.Open(redlatch.Config{
		Nodes:        urls,
		NodeTimeout:  time.Second,
		NoQuarantine: true, // these servers have only just started
		Label:        "web-1",
	})
	if err != nil {
		panic(err)
	}
	defer client.Close()

	err = client.Campaign(context.Background(), "leader", func(ctx context.Context) error {
		lock, held := redlatch.Held(ctx, "leader")
		fmt.Println("leads, by a token:", held && lock.Token() > 0)
		for holder, err := range client.Observe(ctx, "leader") {
			if err == nil && holder.ID != "" {
				fmt.Println("seen:", holder.Label)
				break
			}
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// leads, by a token: true
	// seen: web-1
	// <nil>
}
