package interop

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// peer is one client of another library. It makes one try an acquisition, and
// renews nothing by itself.
type peer interface {
	// acquire reports whether the peer now holds the lock.
	acquire(ctx context.Context, name string, ttl time.Duration) (bool, error)
	// release gives up what acquire took. false: the library says that it was
	// held no longer, which not all do.
	release(ctx context.Context) (bool, error)
}

// library is one row of the table in docs/interop.md.
type library struct {
	name string
	// version is what the tests run, or the one whose commands they send. The
	// system's package manager chooses it where a row is not pinned.
	version func(t *testing.T) string
	pinned  bool
	// nodes is how many servers the library locks.
	nodes int
	// template is the Config.KeyTemplate that meets the library's keys.
	template string
	open     func(t *testing.T, nodes []*redistest.Server) peer
}

var libraries = []library{
	{"redsync", module("github.com/go-redsync/redsync/v4"), true, 3, "{name}", openRedsync},
	{"redislock", module("github.com/bsm/redislock"), true, 1, "{name}", openRedislock},
	{"node-redlock", npm("redlock"), true, 3, "{name}", openNode("redlock")},
	{"@sesamecare-oss/redlock", npm("@sesamecare-oss/redlock"), true, 3, "{name}", openNode("@sesamecare-oss/redlock")},
	{"redis-semaphore Mutex", npm("redis-semaphore"), true, 1, "mutex:{name}", openNode("redis-semaphore")},
	{"redis-semaphore RedlockMutex", npm("redis-semaphore"), true, 3, "mutex:{name}", openNode("redis-semaphore")},
	{"redis-py Lock", redisPyVersion, false, 1, "{name}", openRedisPy},
	{"PHPRedisMutex", phpRedisMutexVersion, false, 3, "lock_{name}", openPHPRedisMutex},
	{"Redlock-rb", itself("2.0.6"), true, 3, "{name}", openRedlockRB},
	{"Redlock-py", itself("1.0.6"), true, 3, "{name}", openRedlockPy},
	{"Redlock-php", itself("f063a98"), true, 3, "{name}", openRedlockPHP},
	{"Redis::DistLock", itself("0.07"), true, 3, "{name}", openDistLock},
	{"Redlock-cpp", itself("f862733"), true, 3, "{name}", openRedlockCPP},
	{"Redlock-cs", itself("2.0.0"), true, 3, "{name}", openRedlockCS},
	{"RedLock.net", itself("2.3"), true, 3, "redlock:{name}", openRedLockNet},
	{"pottery Redlock", itself("3.0.0"), true, 3, "redlock:{name}", openPottery},
	{"python-redis-lock", itself("4.0.0"), true, 1, "lock:{name}", openPythonRedisLock},
	{"StackExchange.Redis", itself("2.10.1"), true, 1, "{name}", openStackExchange},
}

func itself(version string) func(*testing.T) string {
	return func(*testing.T) string { return version }
}

// module returns what version of a Go module the tests are built with.
func module(path string) func(t *testing.T) string {
	return func(t *testing.T) string {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", path).Output()
		if err != nil {
			t.Fatalf("go list -m %s: %v", path, err)
		}
		return strings.TrimPrefix(strings.TrimSpace(string(out)), "v")
	}
}
