package locking

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// What admits a server, keeps it out or records its slots does so only if it is still the server that was looked
// at, as a master, and has what it had then. Else nothing is written.
func TestAdmissionComparesWhatWasSeen(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary, Args: []string{"--replica-read-only", "no"}})
		said := fmt.Sprint(locktest.Do(t, server, "INFO", "server"), locktest.Do(t, server, "INFO", "replication"))
		run := regexp.MustCompile(`run_id:(\w{40})`).FindStringSubmatch(said)[1]
		history := regexp.MustCompile(`master_replid:(\w{40})`).FindStringSubmatch(said)[1]
		other := strings.Repeat("0", 40)
		const keys = "3 admitted deployment quarantine"
		admission := "a"
		admit := func(run, history, record, flushes, note string) []string {
			return []string{script.Voting("compared").Text, keys, script.Admit, "agreement " + run + " " + history, "new", record, flushes, note, admission}
		}
		keepOut := func(run, history, record, note string) []string {
			return []string{script.Quarantine.Text, keys, run, history, "new", record, note, "new"}
		}
		register := func(run, history, record, flushes string) []string {
			return []string{script.Shard.Text, "1 deployment", run, history, "new", record, flushes, "0"}
		}
		send := func(step []string) string {
			return fmt.Sprint(locktest.Do(t, server, slices.Concat([]string{"EVAL", step[0]}, strings.Fields(step[1]), step[2:])...))
		}
		has := func() string {
			return fmt.Sprint(locktest.Do(t, server, "MGET", "admitted", "deployment", "quarantine"))
		}
		write := func() {
			locktest.Do(t, server, "MSET", "admitted", "a 0123456789012345", "deployment", "d", "quarantine", "q")
		}
		write()
		refused := func(what, answer string, step []string) {
			t.Helper()
			if got := send(step); got != answer || has() != "[a 0123456789012345 d q]" {
				t.Errorf("%s: %s, not %s; the keys have %s", what, got, answer, has())
			}
		}
		refused("admit another run", "0", admit(other, history, "d", "+", "q"))
		refused("admit another replication id", "0", admit(run, other, "d", "+", "q"))
		refused("admit with another record", "-1", admit(run, history, "", "+", "q"))
		refused("admit with another note", "-1", admit(run, history, "d", "+", ""))
		refused("admit after a flush of all", "-1", admit(run, history, "d", "calls=1+", "q"))
		refused("admit after a flush of one", "-1", admit(run, history, "d", "+calls=1", "q"))
		admission = ""
		refused("admit with another admission", "-1", admit(run, history, "d", "+", "q"))
		admission = "a"
		refused("keep out another run", "0", keepOut(other, history, "d", "q"))
		refused("keep out another replication id", "0", keepOut(run, other, "d", "q"))
		refused("keep out with another record", "-1", keepOut(run, history, "", "q"))
		refused("keep out with another note", "-1", keepOut(run, history, "d", ""))
		refused("slots of another run", "0", register(other, history, "d", "+"))
		refused("slots of another replication id", "0", register(run, other, "d", "+"))
		refused("slots with another record", "-1", register(run, history, "", "+"))
		refused("slots after a flush", "-1", register(run, history, "d", "calls=1+"))
		// All keys go, and are written anew: the count of the command alone tells.
		flushed := func(command, before string) {
			t.Helper()
			locktest.Do(t, server, command)
			write()
			refused("admit after "+command, "-1", admit(run, history, "d", before, "q"))
			refused("slots after "+command, "-1", register(run, history, "d", before))
		}
		flushed("FLUSHDB", "+")

		locktest.Do(t, server, "CONFIG", "RESETSTAT")
		refused("admit after a reset of the statistics", "-1", admit(run, history, "d", "+", "q"))
		refused("admit after a reset in place of a flush", "-1", admit(run, history, "d", "+calls=1", "q"))
		refused("slots after a reset of the statistics", "-1", register(run, history, "d", "+"))
		const none = "++calls=1" // since the reset
		flushed("FLUSHALL", none)
		locktest.Do(t, server, "CONFIG", "RESETSTAT")

		// A server is a replica before it has another replication id.
		locktest.Do(t, server, "REPLICAOF", "127.0.0.1", "1")
		refused("admit a replica", "0", admit(run, history, "d", none, "q"))
		refused("slots of a replica", "0", register(run, history, "d", none))
		locktest.Do(t, server, "REPLICAOF", "NO", "ONE")
		history = regexp.MustCompile(`master_replid:(\w{40})`).FindStringSubmatch(fmt.Sprint(locktest.Do(t, server, "INFO", "replication")))[1]

		admission = "" // as it is where the server was kept out
		for _, done := range []struct {
			what string
			step []string
			want string
		}{
			{"register slots", register(run, history, "d", none), "[a STAMP new q]"},
			{"keep out", keepOut(run, history, "new", "q"), "[<nil> new new]"},
			{"admit", admit(run, history, "new", none, "new"), "[agreement " + run + " " + history + " STAMP new <nil>]"},
		} {
			got := send(done.step)
			if now := regexp.MustCompile(` \d{16}\b`).ReplaceAllString(has(), " STAMP"); got != "1" || now != done.want {
				t.Errorf("%s: %s; the keys have %s, not %s", done.what, got, now, done.want)
			}
		}
	})
}
