package locktest

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// ServerTime is the server's clock.
func ServerTime(t *testing.T, s *redistest.Server) time.Time {
	t.Helper()
	return storm.TimeOf(Do(t, s, "TIME"))
}

// CompareAndDelete is how other libraries release.
const CompareAndDelete = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`

// Value returns the string at key, "" when there is none.
func Value(t *testing.T, s *redistest.Server, key string) string {
	t.Helper()
	text, _ := Do(t, s, "GET", key).(string)
	return text
}

// Remaining returns the key's TTL; it is negative when there is no key or no
// expiry.
func Remaining(t *testing.T, s *redistest.Server, key string) time.Duration {
	t.Helper()
	return time.Duration(Do(t, s, "PTTL", key).(int64)) * time.Millisecond
}

// AwaitValue waits until key has that value on the server.
func AwaitValue(t *testing.T, s *redistest.Server, key, want string) time.Duration {
	t.Helper()
	return Await(t, fmt.Sprintf("%s is %q on %s", key, want, s.Addr()), func() bool { return Value(t, s, key) == want })
}

// KillAndRestart ends the server as a crash does, and starts it again.
func KillAndRestart(t *testing.T, s *redistest.Server) {
	t.Helper()
	s.Kill()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Do sends a command to the server and returns its answer, which is no error.
func Do(t *testing.T, s *redistest.Server, args ...string) any {
	t.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// LockKeys returns the keys on the server that are not the library's own.
func LockKeys(t *testing.T, s *redistest.Server) []string {
	t.Helper()
	var keys []string
	for _, key := range Do(t, s, "KEYS", "*").([]any) {
		if key := key.(string); len(key) < 9 || key[:9] != "redlatch:" {
			keys = append(keys, key)
		}
	}
	return keys
}

// Output returns how many bytes the server has sent to all its clients.
func Output(t *testing.T, s *redistest.Server) int {
	t.Helper()
	info, err := s.Info("stats")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(info["total_net_output_bytes"])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
