package bench

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"text/tabwriter"
)

var contentionColumns = []struct {
	title, format string
	of            func(j *outcome) float64
}{
	{"locks/s", "%.0f", (*outcome).rate},
	{"hand-offs/s", "%.0f", (*outcome).handOffRate},
	{"p50 µs", "%.0f", func(j *outcome) float64 { return micro(j.quantile(.5)) }},
	{"p99 µs", "%.0f", func(j *outcome) float64 { return micro(j.quantile(.99)) }},
	{"p99.9 µs", "%.0f", func(j *outcome) float64 { return micro(j.quantile(.999)) }},
	{"commands", "%.1f", (*outcome).perLock},
	{"fairness", "%.3f", (*outcome).fairness},
	{"least", "%.0f", func(j *outcome) float64 { return float64(slices.Min(j.each)) }},
	{"most", "%.0f", func(j *outcome) float64 { return float64(slices.Max(j.each)) }},
	{"failed", "%.0f", func(j *outcome) float64 { return float64(j.failed) }},
	{"stolen %", "%.1f", func(j *outcome) float64 { return j.stolen }},
}

func xLocks(j, other *outcome) float64    { return j.rate() / other.rate() }
func xHandOffs(j, other *outcome) float64 { return j.handOffRate() / other.handOffRate() }
func xP99(j, other *outcome) float64 {
	return micro(j.quantile(.99)) / micro(other.quantile(.99))
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// inEach is what of says of each round.
func (c *rivals) inEach(of func(j *outcome) float64) (values []float64) {
	for _, j := range c.rounds {
		values = append(values, of(j))
	}
	return values
}

// median is the middle one over all rounds.
func (c *rivals) median(of func(j *outcome) float64) float64 { return middle(c.inEach(of)) }

// against is the middle one over all rounds of a ratio to other rivals in the
// same round.
func (c *rivals) against(other *rivals, of func(j, other *outcome) float64) float64 {
	var values []float64
	for i, j := range c.rounds {
		values = append(values, of(j, other.rounds[i]))
	}
	return middle(values)
}

// recordContention notes all rounds as figures of b.
func recordContention(b *testing.B, all []*rivals) {
	b.Helper()
	for _, c := range all {
		for _, column := range contentionColumns {
			record(b, c.name, column.title, c.inEach(column.of))
		}
	}
}

// writeContention prints what the rivals did, the first of which is compared with the others.
func writeContention(to io.Writer, title string, all []*rivals) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%s\t", title)
	for _, c := range contentionColumns {
		fmt.Fprintf(w, "%s\t", c.title)
	}
	fmt.Fprintf(w, "%s x locks\tx hand-offs\tx p99\t\n", all[0].name)
	for _, c := range all {
		fmt.Fprintf(w, "%s\t", c.name)
		for _, column := range contentionColumns {
			fmt.Fprintf(w, column.format+"\t", c.median(column.of))
		}
		fmt.Fprintf(w, "%.2f\t%.2f\t%.3f\t\n", all[0].against(c, xLocks), all[0].against(c, xHandOffs), all[0].against(c, xP99))
	}
	w.Flush()
	for _, c := range all {
		for _, j := range c.rounds {
			if j.err != nil {
				fmt.Fprintf(to, "%s failed, once with: %v\n", c.name, j.err)
				break
			}
		}
	}
}
