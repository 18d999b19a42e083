package goredis

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// slowPipelines is a hook by which each pipeline takes until goOn is closed, as with a server that hangs.
type slowPipelines struct{ began, goOn chan struct{} }

func (*slowPipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*slowPipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (s *slowPipelines) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error {
		close(s.began)
		<-s.goOn
		return net.ErrClosed
	}
}

// Close waits for a batch whose caller does not: its program may then close the client of go-redis.
func TestCloseWaitsForABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // no name, which would be looked up
		defer client.Close()
		slow := &slowPipelines{began: make(chan struct{}), goOn: make(chan struct{})}
		client.AddHook(slow)
		conn := newListenConn(client)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-slow.began
			cancel()
		}()
		if _, errs := conn.Batch(ctx, []string{"INFO"}, []string{"TIME"}); !errors.Is(errs[1], context.Canceled) {
			t.Errorf("the batch: %v", errs)
		}
		closed := make(chan struct{})
		go func() {
			conn.Close()
			close(closed)
		}()
		time.Sleep(time.Minute)
		select {
		case <-closed:
			t.Error("closed while the batch is under way")
		default:
		}
		close(slow.goOn)
		<-closed
	})
}
