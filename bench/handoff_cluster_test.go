package bench

import (
	"fmt"
	"os"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// BenchmarkHandOffCluster is the hand-off to one waiter in a Cluster, who is woken up, beside that
// of a user who may not listen to sharded channels and so looks every 30 ms, and beside one server.
// A hand-off begins at any moment between two looks.
func BenchmarkHandOffCluster(b *testing.B) {
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
		if _, err := s.Do("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "&*", "+@all", "-ssubscribe"); err != nil {
			b.Fatal(err)
		}
	}
	ways := []struct{ name, addr string }{
		{"one server", servers(b, 1)[0].Addr()},
		{"Cluster", cluster[0].Addr() + "?cluster"},
		{"Cluster, looking", "deaf:secret@" + cluster[0].Addr() + "?cluster"},
	}
	all, took := make([]*rivals, len(ways)), make([][]time.Duration, len(ways))
	for i, way := range ways {
		all[i] = &rivals{name: way.name}
		for range 2 {
			l, err := openRedlatchWith(redlatch.Config{NoQuarantine: true, Deployment: "handoff"}, []string{way.addr})
			if err != nil {
				b.Fatalf("%s: %v", way.name, err)
			}
			b.Cleanup(l.close)
			all[i].clients = append(all[i].clients, l.(waiter))
		}
	}
	name := "handoff/" + b.Name()
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
