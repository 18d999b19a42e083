package goredis_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/goredis"
	"github.com/redlatch/redlatch/internal/redistest"
)

// BenchmarkHandOff is how long after the call that releases a lock the one who waits for it in
// another client has it: over redlatch's own connections, over go-redis, and over go-redis
// without Subscribe, where who waits looks every 30 ms.
func BenchmarkHandOff(b *testing.B) {
	server := redistest.New(b)
	ways := []struct {
		name string
		open func() *redlatch.Client
		took []time.Duration
	}{
		{name: "own", open: func() *redlatch.Client {
			c := config
			c.Deployment, c.Nodes = "own", []string{server.URL()}
			return must(b)(redlatch.Open(c))
		}},
		{name: "subscribed", open: func() *redlatch.Client { return over(b, "subscribed", rdb(b, server)) }},
		{name: "looking", open: func() *redlatch.Client { return over(b, "looking", muted(rdb(b, server))) }},
	}
	clients := make([][2]*redlatch.Client, len(ways))
	for i, w := range ways {
		clients[i] = [2]*redlatch.Client{w.open(), w.open()}
		handOff(b, clients[i], w.name) // connects
	}
	for i := 0; b.Loop(); i++ {
		for range 20 {
			for k := range ways { // one each, so that all have the same moments
				k := (i + k) % len(ways)
				ways[k].took = append(ways[k].took, handOff(b, clients[k], ways[k].name))
			}
		}
	}
	median := func(i int) float64 {
		slices.Sort(ways[i].took)
		return float64(ways[i].took[len(ways[i].took)/2].Microseconds())
	}
	b.ReportMetric(0, "ns/op")
	for i, w := range ways {
		b.ReportMetric(median(i), w.name+"-µs")
	}
	b.ReportMetric(median(1)/median(0), "subscribed/own")
	b.ReportMetric(median(2)/median(1), "looking/subscribed")
}

func must(b *testing.B) func(client *redlatch.Client, err error) *redlatch.Client {
	return func(client *redlatch.Client, err error) *redlatch.Client {
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { client.Close() })
		return client
	}
}

func rdb(b *testing.B, server *redistest.Server) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	b.Cleanup(func() { client.Close() })
	return client
}

func over(b *testing.B, deployment string, client goredis.Processor) *redlatch.Client {
	c := config
	c.Deployment, c.Nodes = deployment, []string{"node"}
	return must(b)(goredis.Open(c, client))
}

// handOff returns how long after the first client's call of Unlock the second has the lock that
// it waits for. Nobody tells when it waits: 50 ms later it does, at no certain time of its looks.
func handOff(b *testing.B, clients [2]*redlatch.Client, name string) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	lock, err := clients[0].Lock(ctx, name)
	if err != nil {
		b.Fatal(err)
	}
	had := make(chan time.Time, 1)
	failed := make(chan error, 1)
	go func() {
		next, err := clients[1].Lock(ctx, name)
		had <- time.Now()
		if err == nil {
			err = next.Unlock(ctx)
		}
		failed <- err
	}()
	time.Sleep(50*time.Millisecond + time.Duration(time.Now().UnixNano()%int64(30*time.Millisecond)))
	released := time.Now()
	if err := lock.Unlock(ctx); err != nil {
		b.Fatal(err)
	}
	took := (<-had).Sub(released)
	if err := <-failed; err != nil {
		b.Fatal(err)
	}
	return took
}
