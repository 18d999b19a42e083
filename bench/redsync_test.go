package bench

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

type redsyncLocker struct {
	redsync *redsync.Redsync
	closers []func()
}

// openRedsync is redsync as its README has it, one go-redis client a node.
func openRedsync(addrs []string) (locker, error) {
	l := new(redsyncLocker)
	pools := make([]redsyncredis.Pool, len(addrs))
	for i, addr := range addrs {
		client := goredislib.NewClient(&goredislib.Options{Addr: addr})
		l.closers = append(l.closers, func() { client.Close() })
		pools[i] = goredis.NewPool(client)
	}
	l.redsync = redsync.New(pools...)
	return l, nil
}

// openRedsyncRueidis is redsync over rueidis with its defaults, to tell what is
// the library's from what is its driver's.
func openRedsyncRueidis(addrs []string) (locker, error) {
	l := new(redsyncLocker)
	pools := make([]redsyncredis.Pool, len(addrs))
	for i, addr := range addrs {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
		if err != nil {
			l.close()
			return nil, err
		}
		l.closers = append(l.closers, client.Close)
		pools[i] = rueidisPool{client}
	}
	l.redsync = redsync.New(pools...)
	return l, nil
}

func (l *redsyncLocker) close() {
	for _, closer := range l.closers {
		closer()
	}
}

func (l *redsyncLocker) pair(ctx context.Context, name string) error {
	mutex := l.redsync.NewMutex(name)
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	ok, err := mutex.UnlockContext(ctx)
	if err == nil && !ok {
		return errNotDeleted
	}
	return err
}

func (l *redsyncLocker) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	mutex := l.redsync.NewMutex(name)
	if err := mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		_, err := mutex.UnlockContext(ctx)
		return err
	}, nil
}

// rueidisPool is redsync's view of a rueidis client. Redsync brings one too,
// over rueidiscompat, a layer whose cost this one spares it.
type rueidisPool struct{ client rueidis.Client }

func (p rueidisPool) Get(ctx context.Context) (redsyncredis.Conn, error) {
	return rueidisConn{p.client, ctx}, nil
}

type rueidisConn struct {
	client rueidis.Client
	ctx    context.Context
}

// errNotUsed answers for what neither a lock nor its release calls.
var errNotUsed = errors.New("not used here")

func (c rueidisConn) Get(string) (string, error)                   { return "", errNotUsed }
func (c rueidisConn) Set(string, string) (bool, error)             { return false, errNotUsed }
func (c rueidisConn) PTTL(string) (time.Duration, error)           { return 0, errNotUsed }
func (c rueidisConn) ScriptLoad(*redsyncredis.Script) error        { return errNotUsed }
func (c rueidisConn) Close() error                                 { return nil }
func (c rueidisConn) do(cmd rueidis.Completed) rueidis.RedisResult { return c.client.Do(c.ctx, cmd) }

func (c rueidisConn) SetNX(name, value string, expiry time.Duration) (bool, error) {
	err := c.do(c.client.B().Set().Key(name).Value(value).Nx().Px(expiry).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return false, nil
	}
	return err == nil, err
}

func (c rueidisConn) Eval(script *redsyncredis.Script, keysAndArgs ...any) (any, error) {
	words := make([]string, len(keysAndArgs))
	for i, word := range keysAndArgs {
		words[i] = word.(string)
	}
	keys, args := words[:script.KeyCount], words[script.KeyCount:]
	count := int64(script.KeyCount)
	n, err := c.do(c.client.B().Evalsha().Sha1(script.Hash).Numkeys(count).Key(keys...).Arg(args...).Build()).AsInt64()
	if refusal, ok := rueidis.IsRedisErr(err); ok && refusal.IsNoScript() {
		n, err = c.do(c.client.B().Eval().Script(script.Src).Numkeys(count).Key(keys...).Arg(args...).Build()).AsInt64()
	}
	return n, err
}
