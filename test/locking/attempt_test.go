package locking

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/oneshot"
)

// slowConn is a connection to a server that admits everybody, and answers each step after
// a time: hung for never.
type slowConn struct {
	run   string
	steps map[string]slowStep
}

type slowStep struct {
	after time.Duration
	reply driver.Reply
}

const hung = time.Duration(-1)

func (c slowConn) Do(_ context.Context, args ...string) (driver.Reply, error) {
	if args[0] == "EVAL" && args[1] == script.Inspect.Text {
		said := []driver.Reply{{Kind: driver.Text, Text: "run_id:" + c.run + "\r\nmaster_replid:i\r\nrole:master\r\nredis_version:7.0.0\r\n"}, {}, {}, {}, {}}
		for i := range said[1:] {
			said[1+i].Kind = driver.Text
		}
		said[4].Text = "1"
		return driver.Reply{Kind: driver.Array, Array: said}, nil
	}
	return driver.Reply{Kind: driver.Int, Int: 1}, nil
}

func (c slowConn) EvalSHA(ctx context.Context, sha string, _, args []string) (driver.Reply, error) {
	step := args[0]
	if sha == script.Releasing.SHA {
		step = "release"
	}
	s := c.steps[step]
	over := make(<-chan time.Time)
	if s.after != hung {
		over = time.After(s.after)
	}
	select {
	case <-over:
		return s.reply, nil
	case <-ctx.Done():
		return driver.Reply{}, errors.New("no answer")
	}
}

func (c slowConn) Connections() uint64 { return 1 }

func (c slowConn) Close() {}

// TryLock and Take return within the time that they are documented to take, whatever hangs:
// a step, the batch that it goes in, or the second round.
func TestTimeOfTryLock(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	const grain = time.Millisecond // a batch is held back for less
	number := func(n int64) driver.Reply { return driver.Reply{Kind: driver.Int, Int: n} }
	undone := driver.Reply{Kind: driver.Text, Text: strings.Repeat("0", 32)}
	never := slowStep{after: hung}
	granted := func(after time.Duration) func(i int64) slowStep {
		return func(i int64) slowStep { return slowStep{after, number(1e15 + i)} }
	}
	stuck := func(int64) slowStep { return never }
	for name, c := range map[string]struct {
		nodes   []int64
		batch   slowStep
		acquire func(i int64) slowStep
		confirm slowStep
		want    time.Duration
	}{
		"nodes hung":                     {[]int64{1, 3, 5}, slowStep{0, undone}, stuck, never, timeout},
		"batch stuck":                    {[]int64{1, 3, 5}, never, granted(0), never, timeout},
		"batch late, then step stuck":    {[]int64{1, 3, 5}, slowStep{timeout * 4 / 5, undone}, stuck, never, timeout},
		"second round stuck":             {[]int64{3, 5}, slowStep{0, undone}, granted(timeout * 9 / 10), never, timeout * 19 / 10},
		"batch late, second round stuck": {[]int64{3, 5}, slowStep{timeout * 4 / 5, undone}, granted(timeout / 10), never, timeout * 19 / 10},
	} {
		for _, n := range c.nodes {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var next int64
					urls := []string{"redis://a", "redis://b", "redis://c", "redis://d", "redis://e"}[:n]
					conf := locktest.Config(urls...)
					conf.NodeTimeout = timeout
					draw := func(below time.Duration) time.Duration { return rand.N(below) }
					client := locktest.OpenIn(t, conf, hook.Surroundings{Batches: true, Clock: clock.System, Draw: draw, Dial: func(string) (driver.Conn, error) {
						next++
						return slowConn{fmt.Sprint("run", next), map[string]slowStep{
							script.Batch: c.batch, script.Acquire: c.acquire(next), script.Confirm: c.confirm, "release": {0, number(1)},
						}}, nil
					}})
					start := time.Now()
					lock, err := client.TryLock(t.Context(), "x")
					if took := time.Since(start); lock != nil || !errors.Is(err, redlatch.ErrNoQuorum) || took > c.want+grain {
						t.Errorf("%d nodes: %v after %v, want no quorum after %v", n, err, took, c.want)
					}
					start = time.Now()
					if _, err := oneshot.New(client).Take(t.Context(), "x", "id", 10*time.Second); time.Since(start) > timeout+grain {
						t.Errorf("%d nodes: take: %v after %v", n, err, time.Since(start))
					}
				})
			})
		}
	}
}

// stalled is a connection to which commands come when nobody waits for them any more, once it stalls: the process was
// stopped before.
type stalled struct {
	driver.Conn
	stalls atomic.Bool
}

func (c *stalled) EvalSHA(ctx context.Context, sha string, keys, args []string) (driver.Reply, error) {
	if c.stalls.Load() {
		<-ctx.Done()
	}
	return c.Conn.EvalSHA(ctx, sha, keys, args)
}

// The error of a step that was not sent because its time was over is not that of a ctx that was cancelled: nobody has
// cancelled one.
func TestStepThatIsNotSentInTime(t *testing.T) {
	t.Parallel()
	server := locktest.Shared(t, 1)[0]
	for name, batches := range map[string]bool{"alone": false, "in a batch": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conn *stalled
			client := locktest.OpenIn(t, locktest.Config(server.URL()), hook.Surroundings{Batches: batches, Dial: func(string) (driver.Conn, error) {
				c, err := connTo(server.URL())
				conn = &stalled{Conn: c}
				return conn, err
			}})
			removed(t, []*redistest.Server{server}, t.Name()) // it is not released
			lock := locktest.TryLock(t, client, t.Name(), redlatch.WithoutRenewal())
			conn.stalls.Store(true)
			defer conn.stalls.Store(false)
			for step, err := range map[string]error{
				"lock":   locktest.ErrorOf(client.TryLock(t.Context(), t.Name()+"2")),
				"extend": lock.Extend(t.Context(), locktest.TTL),
				"unlock": lock.Unlock(t.Context()),
			} {
				if !errors.Is(err, redlatch.ErrNoQuorum) || errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "context") {
					t.Errorf("%s: %v", step, err)
				}
			}
		})
	}
}
