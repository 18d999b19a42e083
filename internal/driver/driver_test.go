package driver

import "testing"

// What a server said of itself and what waiting cures, in the words of redis-server 7 and
// valkey-server 8.
func TestPassing(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"LOADING Redis is loading the dataset in memory":                                                   true,
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.":           true,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                          true,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":                 true,
		"CLUSTERDOWN The cluster is down":                                                                  true,
		"OOM command not allowed when used memory > 'maxmemory'.":                                          true,
		"OOM command not allowed when used memory > 'maxmemory'. script: 0123, on @user_script:1.":         true,
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.": true,
		"NOREPLICAS Not enough good replicas to write.":                                                    true,
		"ERR max number of clients reached":                                                                true,
		"max number of clients reached":                                                                    true,
		"ERR max number of clients + cluster connections reached":                                          true,
		"READONLY You can't write against a read only replica.":                                            true,
		"ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0":            true,
		"ERR Script attempted to access a non local key in a cluster node script: 3d4d, on @user_script:7": true,

		"":        false,
		"ERR":     false,
		"OOMPH":   false,
		"ERR OOM": false,
		"BUSYGROUP Consumer Group name already exists":              false,
		"BUSYKEY Target key name already exists.":                   false,
		"ERR the max number of clients is 0":                        false,
		"MOVED 1 127.0.0.1:6379":                                    false,
		"NOAUTH Authentication required.":                           false,
		"WRONGPASS invalid username-password pair":                  false,
		"DENIED Redis is running in protected mode":                 false,
		"NOPERM User x has no permissions to run the 'set' command": false,
		"ERR DB index is out of range":                              false,
		"WRONGTYPE Operation against a key":                         false,
	} {
		if got := (&ServerError{Text: text}).Passing(); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

// What a server says is printable, and repeats no arguments of a command.
func TestServerErrorIsPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"WRONGTYPE Operation":                       "WRONGTYPE Operation",
		"ERR \x1b[31mred\u202e\nredlatch: all well": `ERR \x1b[31mred\u202e\nredlatch: all well`,
		"ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'u' 'secret' ": "ERR unknown command 'HELLO', with arguments",
	} {
		e := &ServerError{Text: text}
		if e.Error() != want {
			t.Errorf("%q: %q, want %q", text, e.Error(), want)
		}
	}
}

func TestReplyString(t *testing.T) {
	t.Parallel()
	reply := Reply{Kind: Array, Array: []Reply{{Kind: Int, Int: -7}, {Kind: Text, Text: "a\x1b\xff"}, {}, {Kind: Array}}}
	if got, want := reply.String(), `[-7 "a\x1b\xff" null []]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
