package bench

import (
	"fmt"
	"io"
	"testing"
	"text/tabwriter"
	"time"
)

// column is one figure of a contestant in a round, given its own sample and
// that of the contestant it is compared with.
type column struct {
	title, format string
	of            func(s, base *sample) float64
}

var columns = []column{
	{"median µs", "%.0f", func(s, _ *sample) float64 { return micro(s.quantile(.5)) }},
	{"p99 µs", "%.0f", func(s, _ *sample) float64 { return micro(s.quantile(.99)) }},
	{"locks/s", "%.0f", func(s, _ *sample) float64 { return s.rate() }},
	{"x median", "%.2f", xMedian},
	{"x rate", "%.2f", xRate},
	{"x cpu", "%.2f", func(s, base *sample) float64 { return s.per(micro(s.cpu)) / base.per(micro(base.cpu)) }},
	{"cpu µs", "%.1f", func(s, _ *sample) float64 { return s.per(micro(s.cpu)) }},
	{"server µs", "%.1f", func(s, _ *sample) float64 { return s.per(micro(s.serverCPU)) }},
	{"allocs", "%.0f", func(s, _ *sample) float64 { return s.per(float64(s.allocs)) }},
	{"bytes", "%.0f", func(s, _ *sample) float64 { return s.per(float64(s.bytes)) }},
	{"executed", "%.1f", func(s, _ *sample) float64 { return s.per(float64(s.commands)) }},
}

func xMedian(s, base *sample) float64 { return micro(s.quantile(.5)) / micro(base.quantile(.5)) }
func xRate(s, base *sample) float64   { return s.rate() / base.rate() }
func micro(d time.Duration) float64   { return float64(d) / float64(time.Microsecond) }

// result is all rounds of one contest: rounds[r][k] is contestant k's.
type result struct {
	names []string
	// base is the index of the contestant that contestant k is compared with.
	base   []int
	sent   []float64 // commands a pair, or nil
	rounds [][]*sample
}

// each is what of says of contestant k in each round.
func (r *result) each(k int, of func(s, base *sample) float64) []float64 {
	values := make([]float64, len(r.rounds))
	for i, round := range r.rounds {
		values[i] = of(round[k], round[r.base[k]])
	}
	return values
}

// median is the middle one over all rounds.
func (r *result) median(k int, of func(s, base *sample) float64) float64 {
	return middle(r.each(k, of))
}

func (r *result) failed(k int) (n int, err error) {
	for _, round := range r.rounds {
		n += round[k].failed
		if round[k].err != nil {
			err = round[k].err
		}
	}
	return n, err
}

// record notes all rounds as figures of b.
func (r *result) record(b *testing.B) {
	b.Helper()
	for k, name := range r.names {
		for _, c := range columns {
			record(b, name, c.title, r.each(k, c.of))
		}
		if r.sent != nil {
			record(b, name, "sent", []float64{r.sent[k]})
		}
		n, _ := r.failed(k)
		record(b, name, "failed", []float64{float64(n)})
	}
}

func (r *result) write(to io.Writer, title string) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%s, %d rounds\t", title, len(r.rounds))
	for _, c := range columns {
		fmt.Fprintf(w, "%s\t", c.title)
	}
	if r.sent != nil {
		fmt.Fprint(w, "sent\t")
	}
	fmt.Fprint(w, "failed\t\n")
	for k, name := range r.names {
		fmt.Fprintf(w, "%s\t", name)
		for _, c := range columns {
			fmt.Fprintf(w, c.format+"\t", r.median(k, c.of))
		}
		if r.sent != nil {
			fmt.Fprintf(w, "%.1f\t", r.sent[k])
		}
		n, _ := r.failed(k)
		fmt.Fprintf(w, "%d\t\n", n)
	}
	w.Flush()
	for k, name := range r.names {
		if n, err := r.failed(k); n > 0 {
			fmt.Fprintf(to, "%s failed %d times, once with: %v\n", name, n, err)
		}
	}
}
