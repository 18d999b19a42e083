package locking

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/script"
)

// votes are the steps by which a node votes: their keys, what follows the step's name, and the answer of a
// node that is not admitted.
var votes = map[string]struct{ keys, args, refused string }{
	script.Acquire:       {"A A:token ADMISSION A:next", "id 9000 1 1 9000 EXPECTED", "0"},
	script.AcquireAll:    {"A A:token A:next B B:token B:next ADMISSION", "id 9000 1 1 9000 EXPECTED", "0"},
	script.AcquireShared: {"A A:token ADMISSION A:next A:readers", "id 9000 1 1 9000 EXPECTED", "0"},
	script.Slot:          {"P ADMISSION P:next", "id 9000 1 1 9000 EXPECTED * 2 0", "0"},
	script.Enqueue:       {"A ADMISSION A:next", "waiter 0 EXPECTED", "0"},
	script.EnqueueSlot:   {"P ADMISSION P:next", "waiter 0 EXPECTED 2", "0"},
	script.Batch:         {"ADMISSION A A:token A:next", "9000 EXPECTED 1 id 9000 1", ""},
	script.Extend:        {"A A:token ADMISSION", "id 9000 1 9000 EXPECTED", "-1"},
	script.ExtendAll:     {"A A:token A:next B B:token B:next ADMISSION", "id 9000 1 9000 EXPECTED", "-1"},
	script.ExtendBatch:   {"ADMISSION A A:token", "9000 EXPECTED id 9000 1", "-1"},
	script.ExtendShared:  {"A A:token ADMISSION A:readers", "id 9000 1 9000 EXPECTED", "-1"},
	script.Repair:        {"A A:token ADMISSION", "id 9000 1 9000 EXPECTED", "-1"},
	script.RepairAll:     {"A A:token A:next B B:token B:next ADMISSION", "id 9000 1 9000 EXPECTED", "-1"},
	script.RepairShared:  {"A A:token ADMISSION A:readers", "id 9000 1 9000 EXPECTED", "-1"},
}

// Each step by which a node votes is refused and writes nothing where nobody admitted the server, or where
// another one was admitted. Else it is done.
func TestEachVoteReadsTheAdmission(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := locktest.SharedOf(t, binary, 1)[0]
		replication := regexp.MustCompile(`master_replid:(\w{40})`).FindStringSubmatch(fmt.Sprint(locktest.Do(t, server, "INFO", "replication")))[1]
		for step, v := range votes {
			t.Run(step, func(t *testing.T) {
				t.Parallel()
				admission, expected := t.Name()+" admission", "votes run "+replication
				named := map[string]string{"A": t.Name(), "B": t.Name() + "B", "P": locktest.PermitsKey(t.Name()), "ADMISSION": admission}
				var keys []string
				for word := range strings.SplitSeq(v.keys, " ") {
					lock, side, beside := strings.Cut(word, ":")
					key := named[lock]
					if beside {
						key = "redlatch:{" + t.Name() + "}:" + side + ":" + key
					}
					keys = append(keys, key)
				}
				args := strings.Split(v.args, " ")
				args[slices.Index(args, "EXPECTED")] = expected
				vote := slices.Concat([]string{"EVAL", script.Voting("votes").Text, strconv.Itoa(len(keys))}, keys, []string{step}, args)
				const never = " 0000000000000000" // was the replication id looked at
				for _, admitted := range []string{"", "votes another " + replication + never} {
					if admitted != "" {
						locktest.Do(t, server, "SET", admission, admitted)
					}
					if reply := fmt.Sprint(locktest.Do(t, server, vote...)); reply != v.refused {
						t.Errorf("admitted as %q: %s, not %q", admitted, reply, v.refused)
					}
					locktest.Do(t, server, "DEL", admission)
					if n := locktest.Do(t, server, append([]string{"EXISTS"}, keys...)...); n != int64(0) {
						t.Errorf("admitted as %q, it has written %v keys", admitted, n)
					}
				}
				// The id was looked at long ago or, by a clock that was set back since, later than now.
				at := slices.Index(vote, expected)
				other := "votes run " + strings.Repeat("0", 40)
				vote[at] = other
				for _, stamp := range []string{never, " 9999999999999999"} {
					locktest.Do(t, server, "SET", admission, other+stamp)
					if reply := fmt.Sprint(locktest.Do(t, server, vote...)); reply != v.refused {
						t.Errorf("admitted under another replication id, looked at%s: %s, not %q", stamp, reply, v.refused)
					}
				}
				vote[at] = expected
				locktest.Do(t, server, "SET", admission, expected+never)
				if reply := fmt.Sprint(locktest.Do(t, server, vote...)); reply == v.refused {
					t.Errorf("admitted: %s", reply)
				}
			})
		}
	})
}
