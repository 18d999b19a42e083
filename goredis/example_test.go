package goredis_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/goredis"
	"github.com/redlatch/redlatch/internal/redistest"
)

// addresses are those of servers that were started for an example, which stop ends.
func addresses(servers []*redistest.Server, err error) (addresses []string, stop func()) {
	if err != nil {
		panic(err)
	}
	for _, s := range servers {
		addresses = append(addresses, s.Addr())
	}
	return addresses, func() {
		for _, s := range slices.Backward(servers) {
			s.Close()
		}
	}
}

// charge is what must not run twice at once.
func charge(ctx context.Context) error {
	fmt.Println("charging, while it is held:", ctx.Err() == nil)
	return nil
}

// One server, over the client that the program has for it.
func ExampleOpen() {
	servers, stop := addresses(redistest.StartNodes(context.Background(), 1, redistest.Options{}))
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: servers[0]})
	defer rdb.Close()

	client, err := goredis.Open(redlatch.Config{
		NodeTimeout:  time.Second,
		NoQuarantine: true, // this server has only just started
	}, rdb)
	if err != nil {
		panic(err)
	}
	defer client.Close() // before rdb
	fmt.Println(client.Do(context.Background(), "invoice/42", charge))
	// Output:
	// charging, while it is held: true
	// <nil>
}

// Three independent servers: a majority of them has the lock.
func ExampleOpen_majority() {
	servers, stop := addresses(redistest.StartNodes(context.Background(), 3, redistest.Options{}))
	defer stop()
	var clients []goredis.Processor
	for _, addr := range servers {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		defer rdb.Close()
		clients = append(clients, rdb)
	}

	client, err := goredis.Open(redlatch.Config{NodeTimeout: time.Second, NoQuarantine: true}, clients...)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	fmt.Println(client.Do(context.Background(), "invoice/42", charge))
	// Output:
	// charging, while it is held: true
	// <nil>
}

// A master that Sentinels watch. go-redis believes the first Sentinel that answers, which has to
// be accepted by name, and an operator vouches for a master that has only just started.
func ExampleAnySentinel() {
	ctx := context.Background()
	master, err := redistest.Start(ctx, redistest.Options{})
	if err != nil {
		panic(err)
	}
	servers := []*redistest.Server{master}
	for range 3 {
		sentinel, err := redistest.StartSentinel(ctx, "main", master, 2, redistest.Options{})
		if err != nil {
			panic(err)
		}
		servers = append(servers, sentinel)
	}
	all, stop := addresses(servers, nil)
	defer stop()
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: all[1:]})
	defer rdb.Close()

	client, err := goredis.Open(redlatch.Config{
		Nodes:       []string{"main"}, // what all clients call it
		NodeTimeout: time.Second,
	}, goredis.AnySentinel(rdb))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	if err := client.Admit(ctx, "main"); err != nil {
		panic(err)
	}
	fmt.Println(client.Do(ctx, "invoice/42", charge))
	// Output:
	// charging, while it is held: true
	// <nil>
}

// A Cluster is one node.
func ExampleOpen_cluster() {
	servers, stop := addresses(redistest.StartCluster(context.Background(), 3, redistest.Options{}))
	defer stop()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers})
	defer rdb.Close()

	client, err := goredis.Open(redlatch.Config{
		Nodes:        []string{"cluster"},
		NodeTimeout:  time.Second,
		NoQuarantine: true,
	}, rdb)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	fmt.Println(client.Do(context.Background(), "invoice/42", charge))
	// Output:
	// charging, while it is held: true
	// <nil>
}

// The servers of a Ring know nothing of each other. They are the nodes, each by a client of its
// own: those of Ring.GetShardClients are fewer while a server is down, and a majority of fewer
// is none.
func ExampleOpen_ring() {
	servers, stop := addresses(redistest.StartNodes(context.Background(), 3, redistest.Options{}))
	defer stop()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": servers[0], "b": servers[1], "c": servers[2]}})
	defer ring.Close()

	config := redlatch.Config{NodeTimeout: time.Second, NoQuarantine: true}
	var clients []goredis.Processor
	for shard, addr := range ring.Options().Addrs {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		defer rdb.Close()
		clients = append(clients, rdb)
		config.Nodes = append(config.Nodes, shard)
	}
	client, err := goredis.Open(config, clients...)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	fmt.Println(client.Do(context.Background(), "invoice/42", charge))
	// Output:
	// charging, while it is held: true
	// <nil>
}
