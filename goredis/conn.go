package goredis

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/driver"
)

// once is a command that go-redis must not send again, because it may have been executed.
type once struct{ *redis.Cmd }

// rule: at-most-once

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

func command(ctx context.Context, args []string) once {
	words := make([]any, len(args))
	for i, arg := range args {
		words[i] = arg
	}
	return once{redis.NewCmd(ctx, words...)}
}

func newConn(client Processor) *driver.Ordered {
	return driver.NewOrdered(func(ctx context.Context, args []string) (driver.Reply, error) {
		cmd := command(ctx, args)
		err := client.Process(ctx, cmd)
		if err == nil {
			err = cmd.Err() // where Process only queues, as that of an AutoPipeliner may, this waits for the reply
		}
		return answer(cmd, err)
	})
}

// batchConn is a connection whose client can send commands in one pipeline.
type batchConn struct {
	*driver.Ordered
	client pipeliner
}

var _ driver.Batcher = (*batchConn)(nil)

func newBatchConn(client pipeliner) *batchConn {
	return &batchConn{Ordered: newConn(client), client: client}
}

// Batch implements driver.Batcher. Its caller has a time limit of its own, and sends one batch at a
// time. As with other commands, Close waits for what its caller does not.
func (c *batchConn) Batch(ctx context.Context, commands ...[]string) ([]driver.Reply, []error) {
	replies, errs := make([]driver.Reply, len(commands)), make([]error, len(commands))
	send := func(context.Context, []string) (driver.Reply, error) {
		pipe := c.client.Pipeline()
		sent := make([]once, len(commands))
		for i, args := range commands {
			sent[i] = command(ctx, args)
			errs[i] = pipe.Process(ctx, sent[i])
		}
		_, err := pipe.Exec(ctx)
		_, isReply := replied(err)
		for i, cmd := range sent {
			if errs[i] == nil && cmd.Err() == nil && err != nil && !isReply {
				errs[i] = err
				continue
			}
			replies[i], errs[i] = answer(cmd, cmd.Err())
		}
		return driver.Reply{}, nil
	}
	_, err := c.DoBy(ctx, send, "PING") // in place of any command without a key, which waits for no other
	if err == nil {
		return replies, errs
	}
	lost := make([]error, len(commands))
	for i := range lost {
		lost[i] = err
	}
	return make([]driver.Reply, len(commands)), lost
}

// replied returns what a server has replied, without what a hook of the program has added to it.
func replied(err error) (text string, ok bool) {
	e, ok := errors.AsType[redis.Error](err)
	if ok {
		text = e.Error()
	}
	return text, ok
}

// answer converts what go-redis returned to a Reply.
func answer(cmd once, err error) (driver.Reply, error) {
	switch text, isReply := replied(err); {
	case err == nil:
		return convert(cmd.Val())
	case errors.Is(err, redis.Nil):
		return driver.Reply{}, nil
	case isReply:
		return driver.Reply{}, &driver.ServerError{Text: text}
	case unsent(err):
		return driver.Reply{}, driver.NotSent(err)
	}
	return driver.Reply{}, err
}

// unsent reports whether err came before the command could leave, because there was no connection
// for it.
func unsent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial" || errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

func convert(value any) (driver.Reply, error) {
	switch v := value.(type) {
	case nil:
		return driver.Reply{}, nil
	case int64:
		return driver.Reply{Kind: driver.Int, Int: v}, nil
	case string:
		return driver.Reply{Kind: driver.Text, Text: v}, nil
	case []any:
		return convertAll(v)
	case map[any]any: // RESP3; RESP2 has a flat list
		flat := make([]any, 0, 2*len(v))
		for name, field := range v {
			flat = append(flat, name, field)
		}
		return convertAll(flat)
	case error: // within an array
		return driver.Reply{}, &driver.ServerError{Text: v.Error()}
	}
	return driver.Reply{}, fmt.Errorf("a reply of type %T", value)
}

func convertAll(values []any) (driver.Reply, error) {
	array := driver.Reply{Kind: driver.Array, Array: make([]driver.Reply, len(values))}
	for i, value := range values {
		var err error
		if array.Array[i], err = convert(value); err != nil {
			return driver.Reply{}, err
		}
	}
	return array, nil
}
