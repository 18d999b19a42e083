package zookeeper_test

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest/conformance"
	"github.com/redlatch/redlatch/internal/locktest/enginetest"
	"github.com/redlatch/redlatch/zookeeper"
)

// stage is an ensemble as one node. The suite looks at it as another client of ZooKeeper does.
type stage struct {
	ensemble zookeeper.Ensemble
	conn     *zk.Conn
}

func (s stage) Open(t *testing.T, c redlatch.Config) conformance.Client {
	t.Helper()
	return open(t, redlatch.Config{TTL: 20 * time.Second, MaxTTL: 30 * time.Second, MaxHold: c.MaxHold}, s.ensemble)
}

func (stage) Nodes() int { return 1 }

func (s stage) place(key string) string { return s.ensemble.Root + "/lock:" + url.QueryEscape(key) }

// lease is the path of what is held, "" for nothing.
func (s stage) lease(t *testing.T, key string) string {
	t.Helper()
	if _, err := s.conn.Sync(s.ensemble.Root); err != nil {
		t.Fatal(err)
	}
	children, _, err := s.conn.Children(s.place(key))
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	for _, child := range children {
		if strings.HasPrefix(child, "lease:") {
			return s.place(key) + "/" + child
		}
	}
	return ""
}

func (s stage) Value(t *testing.T, _ int, key string) string {
	t.Helper()
	_, escaped, _ := strings.Cut(strings.TrimPrefix(s.lease(t, key), s.place(key)), "lease:")
	id, err := url.QueryUnescape(escaped)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Left is what the lease was given when it was written last.
func (s stage) Left(t *testing.T, _ int, key string) time.Duration {
	t.Helper()
	lease := s.lease(t, key)
	if lease == "" {
		return 0
	}
	data, stat, err := s.conn.Get(lease)
	if errors.Is(err, zk.ErrNoNode) {
		return 0
	}
	ms, parseErr := strconv.Atoi(string(data))
	if err := errors.Join(err, parseErr); err != nil {
		t.Fatal(err)
	}
	return time.Until(time.UnixMilli(stat.Mtime)) + time.Duration(ms)*time.Millisecond
}

func (s stage) Set(t *testing.T, _ int, key, value string) {
	t.Helper()
	held, before := s.place(key)+"/held", []any(nil)
	if lease := s.lease(t, key); lease != "" {
		before = []any{&zk.DeleteRequest{Path: lease, Version: -1}, &zk.DeleteRequest{Path: held, Version: -1}}
	}
	if value != "" {
		s.conn.CreateContainer(s.place(key), nil, zk.FlagContainer, zk.WorldACL(zk.PermAll)) // it may be there
		// At once: nobody gets the lock in between.
		hold(t, s.conn, held, s.place(key)+"/lease:"+url.QueryEscape(value), time.Minute, before...)
	} else if before != nil {
		if _, err := s.conn.Multi(before...); err != nil {
			t.Fatal(err)
		}
	}
}

// What every client passes.
func TestConformance(t *testing.T) {
	e := own(t, longSessions)
	for _, test := range conformance.Tests() {
		t.Run(test.Name, func(t *testing.T) {
			if !test.OfMutex() {
				t.Skip("this is refused")
			}
			t.Parallel()
			test.Run(t, stage{zookeeper.Ensemble{Servers: e.Addrs(), Root: enginetest.Root(t)}, connect(t, e)})
		})
	}
}
