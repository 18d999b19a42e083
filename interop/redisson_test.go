package interop

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// The commands of Redisson's RLock: a hash that counts how often each thread
// holds the lock.
const (
	redissonLock = `if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])`
	redissonUnlock = `if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 0
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], ARGV[1])
return 1`
	redissonThread = "285475da-9152-4c83-822a-67ee2f116a79:52"
)

func redissonLocks(s *redistest.Server, name string) (any, error) {
	return s.Do("EVAL", redissonLock, "1", name, "30000", redissonThread)
}

func redissonUnlocks(t *testing.T, s *redistest.Server, name string) {
	t.Helper()
	if do(t, s, "EVAL", redissonUnlock, "2", name, "redisson_lock__channel:{"+name+"}", "0", "30000", redissonThread) != int64(1) {
		t.Error("Redisson found its lock gone")
	}
}

// Redisson's lock is no string. Ours is refused at once and told why; the node
// has not failed. Redisson in its turn fails on ours.
func TestRedissonIsOfAnotherKind(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		for _, n := range []int{1, mostNodes} {
			nodes := servers(t, binary, n)
			client := open(t, nodes, "{name}")
			name := fmt.Sprintf("%s-%d", lockName(t), n)
			for _, s := range nodes {
				if left, err := redissonLocks(s, name); left != nil || err != nil {
					t.Fatalf("Redisson waits for a free lock: %v, %v", left, err)
				}
			}
			_, err := client.TryLock(t.Context(), name)
			checkOtherKind(t, err)
			_, err = client.Lock(within(t, patience), name)
			checkOtherKind(t, err)
			other, err := client.TryLock(t.Context(), name+"-other")
			if err != nil {
				t.Errorf("another name on the same nodes: %v", err)
			} else if err := other.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			for _, s := range nodes {
				redissonUnlocks(t, s, name)
			}

			lock, err := client.TryLock(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			failed := 0
			for _, s := range nodes {
				_, err := redissonLocks(s, name)
				if refusal, ok := errors.AsType[redistest.ServerError](err); ok && refusal.Code() == "WRONGTYPE" {
					failed++
				} else {
					redissonUnlocks(t, s, name) // ours has not come to this node yet
				}
			}
			if failed <= n/2 {
				t.Errorf("Redisson failed on %d of %d nodes", failed, n)
			}
			if err := lock.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func checkOtherKind(t *testing.T, err error) {
	t.Helper()
	failure, ok := errors.AsType[*redlatch.QuorumError](err)
	if !ok || !errors.Is(err, redlatch.ErrRefused) || errors.Is(err, redlatch.ErrHeld) || errors.Is(err, redlatch.ErrNoQuorum) {
		t.Fatalf("not refused: %v", err)
	}
	refused := 0
	for _, a := range failure.Nodes {
		switch {
		case a.Verdict == redlatch.VoteRefused:
			refused++
			if !strings.HasPrefix(a.Err.Error(), "held by a lock of another kind (WRONGTYPE ") {
				t.Errorf("%s", a)
			}
		case a.Err != nil: // else its answer was not waited for
			t.Errorf("a node failed: %s", a)
		}
	}
	if refused < failure.Need {
		t.Errorf("%d nodes refused: %v", refused, err)
	}
}
