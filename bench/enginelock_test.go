package bench

import (
	"context"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// sessionTime is how long a session of the engines' own locks lasts: that of redlatch's, nearly.
const sessionTime = 20 * time.Second

// recipe is the Lock of go-zookeeper, over one connection.
type recipe struct{ conn *zk.Conn }

func openRecipe(on *ensembles) (locker, error) {
	conn, _, err := zk.Connect(on.zookeeper, sessionTime, zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	return recipe{conn}, nil
}

func (r recipe) close() { r.conn.Close() }

func (r recipe) pair(ctx context.Context, name string) error { return pairOf(ctx, r, name) }

// lock waits whatever ctx says: it takes none.
func (r recipe) lock(_ context.Context, name string) (func(context.Context) error, error) {
	l := zk.NewLock(r.conn, "/bench/"+name, zk.WorldACL(zk.PermAll))
	if err := l.Lock(); err != nil {
		return nil, err
	}
	return func(context.Context) error { return l.Unlock() }, nil
}

// mutexes are those of etcd's package concurrency. Two of one session do not exclude each other, so
// each caller has a session while it has a lock.
type mutexes struct {
	client *clientv3.Client

	mu   sync.Mutex // guards free
	free []*concurrency.Session
}

func openMutex(on *ensembles) (locker, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: on.etcd, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	return &mutexes{client: client}, nil
}

func (m *mutexes) close() { m.client.Close() }

func (m *mutexes) pair(ctx context.Context, name string) error { return pairOf(ctx, m, name) }

func (m *mutexes) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	session, err := m.session()
	if err != nil {
		return nil, err
	}
	mutex := concurrency.NewMutex(session, "/bench/"+name)
	if err := mutex.Lock(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		defer m.release(session)
		return mutex.Unlock(ctx)
	}, nil
}

// session is one that nobody uses.
func (m *mutexes) session() (*concurrency.Session, error) {
	m.mu.Lock()
	if last := len(m.free) - 1; last >= 0 {
		s := m.free[last]
		m.free = m.free[:last]
		m.mu.Unlock()
		return s, nil
	}
	m.mu.Unlock()
	return concurrency.NewSession(m.client, concurrency.WithTTL(int(sessionTime/time.Second)))
}

func (m *mutexes) release(s *concurrency.Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free = append(m.free, s)
}

func pairOf(ctx context.Context, l waiter, name string) error {
	unlock, err := l.lock(ctx, name)
	if err != nil {
		return err
	}
	return unlock(ctx)
}
