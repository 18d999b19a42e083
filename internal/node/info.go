package node

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
)

// info is a server's INFO reply.
type info map[string]string

func parseInfo(text string) info {
	fields := make(info)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

func (f info) number(name string) int64 {
	n, _ := strconv.ParseInt(f[name], 10, 64)
	return n
}

// uptime returns how long the server has been up at least, by its wall clock. The server reports
// the difference of two times in whole seconds, which may be up to a second more than has passed.
func (f info) uptime() time.Duration {
	return max(0, time.Duration(f.number("uptime_in_seconds")-1)*time.Second)
}

// promoted reports whether the server was a replica before it was a master: such a server keeps its
// former master's replication id.
func (f info) promoted() bool {
	return f["second_repl_offset"] != "" && f.number("second_repl_offset") >= 0
}

// flushed reports whether this run was ever told to delete all its keys, or does not tell.
func (f info) flushed() bool {
	return f["cmdstat_flushall"] != "" || f["cmdstat_flushdb"] != "" || f.cleared()
}

// flushCount returns how often this run was told to delete all its keys, since its statistics were last reset.
func (f info) flushCount() int64 { return f.calls("flushall", "flushdb") }

// droppedScripts reports whether this run was ever told to drop its scripts, or has dropped some to make room.
func (f info) droppedScripts() bool {
	return f["cmdstat_script|flush"] != "" || f.number("evicted_scripts") > 0
}

// cleared reports whether this run's statistics were ever reset: what they count may have happened more
// often. The server counts the reset after it.
func (f info) cleared() bool { return f["cmdstat_config|resetstat"] != "" }

// follows returns how often this run was told whom to follow, or to follow nobody any more, also by a failover. A
// replica that never reached its master has received nothing, and lacks what that one granted.
func (f info) follows() int64 {
	return f.calls("replicaof", "slaveof", "failover", "cluster|failover")
}

// calls returns how often this run was given one of the commands, since its statistics were last reset.
func (f info) calls(commands ...string) (n int64) {
	for _, command := range commands {
		times, _ := strconv.ParseInt(strings.TrimPrefix(f.count(command), "calls="), 10, 64)
		n += times
	}
	return n
}

// count is what the statistics say of how often the command was given, as "calls=3", or "".
func (f info) count(command string) string {
	calls, _, _ := strings.Cut(f["cmdstat_"+command], ",")
	return calls
}

// evicting reports whether the server may delete keys with a TTL, locks among
// them, to make room.
func (f info) evicting() bool {
	return f.number("maxmemory") > 0 && f["maxmemory_policy"] != "noeviction"
}

// keepsScripts reports whether scripts may outlive a restart or reach a replica. The quarantine
// relies on neither being so.
func (f info) keepsScripts() bool {
	major, _, _ := strings.Cut(f["redis_version"], ".")
	n, err := strconv.Atoi(major)
	return err != nil || n < 7
}

func (f info) inCluster() bool  { return f.hasMode("cluster") }
func (f info) isSentinel() bool { return f.hasMode("sentinel") }

// hasMode reports whether the server runs in that mode; Valkey and Redis name it differently.
func (f info) hasMode(mode string) bool { return f["redis_mode"] == mode || f["server_mode"] == mode }

// CheckAlone returns an error where the server that has this INFO is not a node by itself.
func CheckAlone(text string) error {
	switch f := parseInfo(text); {
	case f.inCluster():
		return fmt.Errorf("%w: %w", admission.ErrUnfit, errTopology[false])
	case f.isSentinel():
		return fmt.Errorf("%w: %w", admission.ErrUnfit, errSentinel)
	case f["role"] == "slave":
		return fmt.Errorf("%w: %w", admission.ErrUnfit, admission.ErrReplica)
	}
	return nil
}

// flushes returns the counts of the commands that delete all keys, and of those that reset these counts.
func (f info) flushes() string {
	counts := f.count("flushall") + "+" + f.count("flushdb")
	if f.cleared() {
		counts += "+" + f.count("config|resetstat")
	}
	return counts
}
