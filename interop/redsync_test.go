package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/redistest"
)

type redsyncPeer struct {
	redsync *redsync.Redsync
	mutex   *redsync.Mutex
}

func openRedsync(t *testing.T, nodes []*redistest.Server) peer {
	pools := make([]redsyncredis.Pool, len(nodes))
	for i, s := range nodes {
		pools[i] = goredis.NewPool(goRedis(t, s))
	}
	return &redsyncPeer{redsync: redsync.New(pools...)}
}

func goRedis(t *testing.T, s *redistest.Server) *goredislib.Client {
	client := goredislib.NewClient(&goredislib.Options{Addr: s.Addr()})
	t.Cleanup(func() { client.Close() })
	return client
}

func (p *redsyncPeer) acquire(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	// The default gives a node a twentieth of the TTL, little on a busy machine.
	p.mutex = p.redsync.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTimeoutFactor(0.5))
	err := p.mutex.TryLockContext(ctx)
	if _, taken := errors.AsType[*redsync.ErrTaken](err); taken {
		return false, nil
	}
	if _, taken := errors.AsType[*redsync.ErrNodeTaken](err); taken || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redsync.ErrFailed) {
		return false, nil // or a node was late
	}
	return err == nil, err
}

func (p *redsyncPeer) release(ctx context.Context) (bool, error) {
	ok, err := p.mutex.UnlockContext(ctx)
	if _, taken := errors.AsType[*redsync.ErrTaken](err); taken || errors.Is(err, redsync.ErrLockAlreadyExpired) {
		err = nil
	}
	return ok, err
}

// The guide names what LockContext returns while another holds the lock.
func TestRedsyncGivesUp(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/guides/from-redsync.md")
	if err != nil {
		t.Fatal(err)
	}
	row := ""
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| `LockContext`") {
			row = line
		}
	}
	eachFlavor(t, func(t *testing.T, binary string) {
		nodes := servers(t, binary, mostNodes)
		lock, err := open(t, nodes, "{name}").Lock(within(t, patience), lockName(t))
		if err != nil {
			t.Fatal(err)
		}
		theirs := openRedsync(t, nodes).(*redsyncPeer).redsync
		options := []redsync.Option{redsync.WithExpiry(long), redsync.WithTries(2)}

		err = theirs.NewMutex(lockName(t), append(options, redsync.WithRetryDelay(time.Millisecond))...).LockContext(t.Context())
		if _, taken := errors.AsType[*redsync.ErrTaken](err); !taken || !strings.Contains(row, "then `ErrTaken`") {
			t.Errorf("after the last try %v; the guide has %s", err, row)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = theirs.NewMutex(lockName(t), append(options, redsync.WithRetryDelay(patience))...).LockContext(ctx)
		if !errors.Is(err, redsync.ErrFailed) || !strings.Contains(row, "`ErrFailed` where ctx was done") {
			t.Errorf("when ctx is done %v; the guide has %s", err, row)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// With WithSetNXOnExtend redsync extends a lock that was ours meanwhile, as docs/interop.md says.
func TestRedsyncExtendsWhatWasOurs(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		nodes := servers(t, binary, mostNodes)
		ours := open(t, nodes, "{name}")
		for takes, options := range map[bool][]redsync.Option{false: nil, true: {redsync.WithSetNXOnExtend()}} {
			name := fmt.Sprint(lockName(t), takes)
			theirs := openRedsync(t, nodes).(*redsyncPeer).redsync.NewMutex(name, append(options, redsync.WithExpiry(brief), redsync.WithTimeoutFactor(0.5))...)
			await(t, "they hold the lock", func() bool { return theirs.TryLockContext(t.Context()) == nil })
			lock, err := ours.Lock(within(t, patience), name) // when theirs has run out
			if err != nil {
				t.Fatal(err)
			}
			if extended, err := theirs.ExtendContext(t.Context()); extended {
				t.Errorf("they have extended what is ours: %v", err)
			}
			if err := lock.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if extended, err := theirs.ExtendContext(t.Context()); extended != takes {
				t.Errorf("with options %v they have extended what was ours: %v, %v", options, extended, err)
			}
		}
	})
}
