package bench

import (
	"flag"
	"os"
	"strconv"
	"strings"
)

var quiet = flag.Float64("quiet", 100, "of Contention's rounds, count those in which the host of this virtual machine took no more than so many % of the processors' time")

// ticks is how long the processors have been up, in all, how much of that they computed here, and how
// much the host of a virtual machine took for others (proc(5), /proc/stat); 0 where nobody says.
type ticks struct{ all, busy, stolen float64 }

func readTicks() (t ticks) {
	text, _ := os.ReadFile("/proc/stat")
	first, _, _ := strings.Cut(string(text), "\n")
	const idle, iowait, steal = 4, 5, 8
	for i, field := range strings.Fields(first) {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil || i > steal {
			continue // what guests had is part of user time
		}
		t.all += n
		switch i {
		case idle, iowait:
		case steal:
			t.stolen = n
		default:
			t.busy += n
		}
	}
	return t
}

// stolenSince is the part of the time since before that was taken, in %.
func stolenSince(before ticks) float64 {
	now := readTicks()
	return 100 * (now.stolen - before.stolen) / max(1, now.all-before.all)
}
