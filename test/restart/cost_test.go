package restart

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// serverWork is what a server has done since it started.
type serverWork struct {
	cpu     time.Duration // of the process
	scripts time.Duration // in EVALSHA, by its own count
}

func (w serverWork) since(before serverWork) serverWork {
	return serverWork{w.cpu - before.cpu, w.scripts - before.scripts}
}

func (w serverWork) plus(more serverWork) serverWork {
	return serverWork{w.cpu + more.cpu, w.scripts + more.scripts}
}

func workOf(b *testing.B, conn *redistest.Conn) (w serverWork) {
	b.Helper()
	for _, section := range []string{"cpu", "commandstats"} {
		reply, err := conn.Do("INFO", section)
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(reply.(string)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			switch name {
			case "used_cpu_user", "used_cpu_sys":
				w.cpu += seconds(b, value)
			case "cmdstat_evalsha":
				_, value, _ = strings.Cut(value, "usec=")
				value, _, _ = strings.Cut(value, ",")
				w.scripts += seconds(b, value) / 1e6
			}
		}
	}
	return w
}

func seconds(b *testing.B, text string) time.Duration {
	b.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(n * float64(time.Second))
}

func middle(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// BenchmarkQuarantineCost compares what a server does for a lock and its release with
// and without the quarantine. An iteration is a round in which both take
// turns twice, the one that begins first ending it, so that what changes with
// time falls on both; the ratios are medians over the rounds.
func BenchmarkQuarantineCost(b *testing.B) {
	for _, binary := range redistest.Flavors() {
		b.Run(binary, func(b *testing.B) {
			const pairs = 500
			server := redistest.New(b, redistest.Options{Binary: binary})
			conn, err := server.Dial(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			clients := make(map[bool]*redlatch.Client)
			for _, quarantine := range []bool{false, true} {
				c := locktest.Config(server.URL())
				c.NoQuarantine = !quarantine
				client, err := redlatch.Open(c)
				if err != nil {
					b.Fatal(err)
				}
				defer client.Close()
				if err := client.Admit(b.Context(), c.Nodes[0]); err != nil {
					b.Fatal(err)
				}
				clients[quarantine] = client
			}
			turn := func(quarantine bool) serverWork {
				before := workOf(b, conn)
				for i := range pairs {
					lock, err := clients[quarantine].TryLock(b.Context(), fmt.Sprint("job/", i%8))
					if err != nil {
						b.Fatal(err)
					}
					if err := lock.Unlock(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				return workOf(b, conn).since(before)
			}

			turn(false)
			turn(true)
			var cpu, scripts, each []float64
			for b.Loop() {
				on := turn(true)
				off := turn(false).plus(turn(false))
				on = on.plus(turn(true))
				cpu = append(cpu, float64(on.cpu)/float64(off.cpu))
				scripts = append(scripts, float64(on.scripts)/float64(off.scripts))
				each = append(each, float64(on.cpu.Nanoseconds())/(2*pairs)/1e3)
			}
			b.ReportMetric(middle(each), "server-µs/pair")
			b.ReportMetric(middle(cpu), "×cpu")
			b.ReportMetric(middle(scripts), "×script")
			b.ReportMetric(0, "ns/op") // a round's time says nothing
		})
	}
}
