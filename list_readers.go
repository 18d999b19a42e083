package redlatch

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/quorum"
)

// Reader is one of those who have a lock together (Client.RLock).
type Reader struct {
	Holder Holder
	// Left is how long Nodes nodes keep what it has, at least, unless it is extended or released. If
	// they are no quorum, it is acquiring the lock, or has lost it.
	Left  time.Duration
	Nodes int
}

// readersIn are those that a node has, with what each has left by its clock.
func readersIn(pairs []driver.Reply, now time.Duration) map[string]time.Duration {
	readers := make(map[string]time.Duration)
	for i := 0; i < len(pairs); i++ {
		pair := pairs[i].Array // RESP3 has an array for each
		if pair == nil {
			pair = pairs[i:min(i+2, len(pairs))]
			i++
		}
		if len(pair) != 2 {
			break
		}
		end, err := strconv.ParseFloat(pair[1].Text, 64)
		if left := time.Duration(end)*time.Millisecond - now; err == nil && left > 0 {
			readers[pair[0].Text] = left
		}
	}
	return readers
}

// readersOf are the readers of a lock that the nodes have.
func readersOf(on []map[listed]found, one listed) []Reader {
	lefts := make(map[string][]time.Duration)
	for _, locks := range on {
		for id, left := range locks[one].readers {
			lefts[id] = append(lefts[id], left)
		}
	}
	var readers []Reader
	for id, left := range lefts {
		readers = append(readers, Reader{parseHolder(id), kept(left, len(on)), len(left)})
	}
	slices.SortFunc(readers, func(a, b Reader) int {
		return cmp.Or(a.Holder.Since.Compare(b.Holder.Since), strings.Compare(a.Holder.ID, b.Holder.ID))
	})
	return readers
}

// kept is for how long a quorum of nodes has what some of them have left, or all of these if they are
// none.
func kept(left []time.Duration, nodes int) time.Duration {
	slices.Sort(left)
	return left[len(left)-min(len(left), quorum.Majority(nodes))]
}

// readTime is what the command TIME has answered, since 1970.
func readTime(reply driver.Reply) time.Duration {
	if len(reply.Array) != 2 {
		return 0
	}
	seconds, _ := strconv.ParseInt(reply.Array[0].Text, 10, 64)
	microseconds, _ := strconv.ParseInt(reply.Array[1].Text, 10, 64)
	return time.Duration(seconds)*time.Second + time.Duration(microseconds)*time.Microsecond
}
