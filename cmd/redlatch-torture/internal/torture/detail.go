//go:build linux

package torture

import (
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// detail describes the fault in words, apart from its kind, nodes and workers.
func (it item) detail() string {
	var d []string
	if it.way != 0 && (it.kind == partition || it.kind == split || it.kind == latency || it.kind == namespace) {
		d = append(d, map[redistest.Direction]string{
			redistest.Requests: "requests only", redistest.Replies: "replies only", redistest.Both: "both ways",
		}[it.way])
	}
	if it.kind == latency {
		d = append(d, fmt.Sprintf("%v and up to %v more", it.delay.Round(time.Millisecond), it.jitter.Round(time.Millisecond)))
	}
	if it.hard && it.part > 0 {
		d = append(d, map[kind]string{minority: "with the leader", lag: "its master killed", failover: "by force, by a replica that is behind", takeover: "by replicas that are behind", fixSlots: "it comes back without its data"}[it.kind])
	}
	switch {
	case it.kind == failback && it.part == 0:
		d = append(d, failbackOf(it).String())
	case it.kind == settings:
		d = append(d, changeableOf(it.whom).name)
	case it.kind == admit && it.hard:
		d = append(d, "it was killed and has its data")
	case it.kind == admit:
		d = append(d, "it is a replica, and then a master")
	case it.kind == stranger:
		d = append(d, strangerOf(it.whom).name)
	case it.maxTTL() > 0:
		d = append(d, fmt.Sprintf("to %v", it.maxTTL()))
	}
	if it.step != 0 {
		d = append(d, fmt.Sprintf("by %+.3f s", it.step.Seconds()))
	}
	if it.aim != anywhere {
		d = append(d, string(it.aim))
	}
	return strings.Join(d, ", ")
}
