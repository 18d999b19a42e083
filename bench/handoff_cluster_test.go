package bench

import (
	"context"
	"fmt"
	"os"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/redistest"
)

// BenchmarkHandOffCluster is the hand-off to one waiter in a Cluster, who is woken up, beside that
// of a user who may not listen to sharded channels and so looks every 30 ms, and beside one server.
// A hand-off begins at any moment between two looks.
func BenchmarkHandOffCluster(b *testing.B) { handOffsCluster(b, "-ssubscribe", false) }

// BenchmarkHandOffClusterForeign is the same from a holder of another library, who wakes nobody up: the
// server tells who waits, unless the user may not be told.
func BenchmarkHandOffClusterForeign(b *testing.B) { handOffsCluster(b, "-client|tracking", true) }

func handOffsCluster(b *testing.B, denied string, foreign bool) {
	cluster, err := redistest.StartCluster(b.Context(), 3, redistest.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		for _, s := range cluster {
			s.Close()
		}
	})
	for _, s := range cluster {
		if _, err := s.Do("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "&*", "+@all", denied); err != nil {
			b.Fatal(err)
		}
	}
	name := "handoff/" + b.Name()
	alone, master := servers(b, 1)[0], cluster[int(hashslot.Of(name))*len(cluster)/hashslot.Slots]
	ways := []struct {
		name, addr string
		on         *redistest.Server
	}{
		{"one server", alone.Addr(), alone},
		{"Cluster", cluster[0].Addr() + "?cluster", master},
		{"Cluster, looking", "deaf:secret@" + cluster[0].Addr() + "?cluster", master},
	}
	all, took := make([]*rivals, len(ways)), make([][]time.Duration, len(ways))
	for i, way := range ways {
		all[i] = &rivals{name: way.name}
		if foreign {
			conn, err := way.on.Dial(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { conn.Close() })
			all[i].clients = append(all[i].clients, foreignHolder{conn: conn})
		}
		for len(all[i].clients) < 2 {
			l, err := openRedlatchWith(redlatch.Config{NoQuarantine: true, Deployment: "handoff"}, []string{way.addr})
			if err != nil {
				b.Fatalf("%s: %v", way.name, err)
			}
			b.Cleanup(l.close)
			all[i].clients = append(all[i].clients, l.(waiter))
		}
	}
	for _, c := range all {
		var err error
		for range 5 { // fills script caches; a busy machine's may fail
			if _, err = c.handOff(name, idle); err == nil {
				break
			}
		}
		if err != nil {
			b.Fatalf("%s: %v", c.name, err)
		}
	}
	for turn := 0; b.Loop(); {
		for range handOffsEach {
			settled := idle + time.Duration(turn%30)*time.Millisecond
			for i := range all {
				k := (i + turn) % len(all)
				d, err := all[k].handOff(name, settled)
				if err != nil { // it counts with its length
					b.Logf("%s: %v", all[k].name, err)
				}
				took[k] = append(took[k], d)
			}
			turn++
		}
	}
	b.ReportMetric(0, "ns/op")
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nhand-off to one waiter\tmedian µs\tp99 µs\tx one server\t\n")
	one := micro(quantileOf(took[0], .5))
	for k, c := range all {
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.1f\t\n", c.name, micro(quantileOf(took[k], .5)), micro(quantileOf(took[k], .99)), micro(quantileOf(took[k], .5))/one)
	}
	w.Flush()
	b.ReportMetric(micro(quantileOf(took[1], .5))/one, "x-one-server")
	b.ReportMetric(micro(quantileOf(took[2], .5))/micro(quantileOf(took[1], .5)), "x-looking")
}

// foreignHolder is another library's: it takes a key that is free and deletes it.
type foreignHolder struct {
	locker // none: it only holds
	conn   *redistest.Conn
}

func (h foreignHolder) lock(_ context.Context, name string) (unlock func(context.Context) error, err error) {
	if _, err := h.conn.Do("SET", name, "theirs", "NX", "PX", "60000"); err != nil {
		return nil, err
	}
	return func(context.Context) error {
		_, err := h.conn.Do("DEL", name)
		return err
	}, nil
}
