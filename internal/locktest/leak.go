package locktest

import (
	"runtime"
	"strings"
	"time"
)

// leakedGoroutines returns the stacks of the goroutines of this module, and of
// the driver's, that are still there; they get some time to end.
func leakedGoroutines() string {
	deadline := time.Now().Add(Patience)
	for {
		var leaked []string
		for _, stack := range stacks() {
			if strings.Contains(stack, "locktest.leakedGoroutines") {
				continue
			}
			if strings.Contains(stack, "redlatch") || strings.Contains(stack, "rueidis") {
				leaked = append(leaked, stack)
			}
		}
		if len(leaked) == 0 || time.Now().After(deadline) {
			return strings.Join(leaked, "\n\n")
		}
		runtime.Gosched()
		<-time.After(10 * time.Millisecond)
	}
}

func stacks() []string {
	buffer := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buffer, true)
		if n < len(buffer) {
			return strings.Split(string(buffer[:n]), "\n\n")
		}
		buffer = make([]byte, 2*len(buffer))
	}
}
