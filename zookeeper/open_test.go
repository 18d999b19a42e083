package zookeeper_test

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/ensembletest"
	"github.com/redlatch/redlatch/internal/locktest/enginetest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/zookeeper"
)

// What cannot work is refused before anything is sent, with the setting in the error.
func TestInvalid(t *testing.T) {
	t.Parallel()
	good := zookeeper.Ensemble{Servers: []string{"127.0.0.1:1"}}
	for name, tt := range map[string]struct {
		config redlatch.Config
		change func(*zookeeper.Ensemble)
		want   string
	}{
		"no server":     {change: func(e *zookeeper.Ensemble) { e.Servers = nil }, want: "zk1:2181"},
		"a URL":         {change: func(e *zookeeper.Ensemble) { e.Servers = []string{"zk://u:secret@zk1:2181"} }, want: "Servers[0]"},
		"another's URL": {change: func(e *zookeeper.Ensemble) { e.Servers = []string{"a:1", "redis://:secret@b"} }, want: "Servers[1]"},
		"a chroot":      {change: func(e *zookeeper.Ensemble) { e.Servers = []string{"zk1:2181/secret"} }, want: "Ensemble.Root"},
		"a list":        {change: func(e *zookeeper.Ensemble) { e.Servers = []string{"zk1:2181,zk2:2181"} }, want: "Servers[0]"},
		"no port":       {change: func(e *zookeeper.Ensemble) { e.Servers = []string{"zk1:secret"} }, want: "Servers[0]"},
		"no slash":      {change: func(e *zookeeper.Ensemble) { e.Root = "redlatch" }, want: "Ensemble.Root"},
		"a last slash":  {change: func(e *zookeeper.Ensemble) { e.Root = "/redlatch/" }, want: "Ensemble.Root"},
		"the servers'":  {change: func(e *zookeeper.Ensemble) { e.Root = "/zookeeper/quota" }, want: "Ensemble.Root"},
		"dots":          {change: func(e *zookeeper.Ensemble) { e.Root = "/a/../b" }, want: "Ensemble.Root"},
		"no password":   {change: func(e *zookeeper.Ensemble) { e.User = "me" }, want: "Ensemble.Password"},
		"nodes":         {config: redlatch.Config{Nodes: []string{"redis://:secret@a"}}, want: "Config.Nodes"},
		"node timeout":  {config: redlatch.Config{NodeTimeout: time.Second}, want: "Config.NodeTimeout"},
		"replicas":      {config: redlatch.Config{Replicas: redlatch.Replicas{Count: 1}}, want: "Config.Replicas"},
		"deployment":    {config: redlatch.Config{Deployment: "a"}, want: "Config.Deployment"},
		"no quarantine": {config: redlatch.Config{NoQuarantine: true}, want: "Config.NoQuarantine"},
		"durable":       {config: redlatch.Config{Durable: true}, want: "Config.Durable"},
		"strict":        {config: redlatch.Config{Strict: true}, want: "Config.Strict"},
		"TTL":           {config: redlatch.Config{TTL: time.Microsecond}, want: "TTL is 1µs"},
		"TLS and Dial":  {config: redlatch.Config{TLS: new(tls.Config)}, change: func(e *zookeeper.Ensemble) { e.Dial = new(wire).dial }, want: "Config.TLS"},
	} {
		e := good
		if tt.change != nil {
			tt.change(&e)
		}
		client, err := zookeeper.OpenWith(tt.config, e)
		if client != nil || !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(fmt.Sprint(err), tt.want) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: %v, want ErrInvalid with %q", name, err, tt.want)
		}
	}
}

// Servers that cannot be reached are no error of Open; a try says so, and Close does not wait for them.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	client, err := zookeeper.Open(redlatch.Config{}, "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	enginetest.Unreachable(t, client)
}

// What answers with a text is found out before its first bytes are taken for the length of an answer, and that much
// memory is used.
func TestForeignServer(t *testing.T) { // alone, because it counts what the process uses
	const answer = "-ERR unknown command\r\n"
	addr, answered := answering(t, answer)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	client := open(t, enginetest.Patient, zookeeper.Ensemble{Servers: []string{addr}})
	if _, err := client.TryLock(t.Context(), "name"); !errors.Is(err, redlatch.ErrNoQuorum) || !strings.Contains(err.Error(), addr+" is connected and has not answered") {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if used, length := after.TotalAlloc-before.TotalAlloc, uint64(binary.BigEndian.Uint32([]byte(answer))); answered.Load() == 0 || used > length/2 {
		t.Errorf("%d answers used %d MB", answered.Load(), used>>20)
	}
}

// The error of a client whose servers hang, are of another kind, or speak TLS where it does not or the reverse, says what to look
// at, and so does Examine.
func TestServersOfAnotherKind(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t).Addr()
	secure := enginetest.Config
	secure.TLS = new(tls.Config)
	text, _ := answering(t, "HTTP/1.1 400 Bad Request\r\n\r\n")
	hung, err := net.Listen("tcp", "127.0.0.1:0") // its connections are made by the kernel
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hung.Close() })
	for name, tt := range map[string]struct {
		addr   string
		config redlatch.Config
		want   string
	}{
		"a hung server":                {hung.Addr().String(), enginetest.Config, "TLS (zks://"},
		"a hung server, by TLS":        {hung.Addr().String(), secure, "redlatch.Config.TLS"},
		"Redis":                        {redis, enginetest.Config, "TLS (zks://"},
		"Redis, by TLS":                {redis, secure, "redlatch.Config.TLS"},
		"a text, by TLS":               {text, secure, "redlatch.Config.TLS"},
		"ZooKeeper without TLS, by it": {common(t).Addrs()[0], secure, "redlatch.Config.TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ensemble := zookeeper.Ensemble{Servers: []string{tt.addr}}
			want := tt.addr + " is connected and has not answered"
			_, err := open(t, tt.config, ensemble).TryLock(t.Context(), "name")
			if !errors.Is(err, redlatch.ErrNoQuorum) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "hangs") || !strings.Contains(err.Error(), "Ensemble.Servers") || !strings.Contains(err.Error(), tt.want) {
				t.Error(err)
			}
			if report := examine(t, tt.config, ensemble); !enginetest.Says(report, true, "", want) {
				t.Errorf("Examine: %+v", report)
			}
		})
	}
}

// answering is the address of a server that answers whatever it is asked with the text, and hangs up, and how often it has.
func answering(t *testing.T, text string) (addr string, answered *atomic.Int32) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	answered = new(atomic.Int32)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { // one that is slow to ask keeps no other waiting
				defer conn.Close()
				conn.Read(make([]byte, 64)) // all of it: what is not read would have the answer thrown away
				io.WriteString(conn, text)
				answered.Add(1)
			}()
		}
	}()
	return listener.Addr().String(), answered
}

// A session that the servers would end too soon is refused, with the setting to change.
func TestSessionTooShort(t *testing.T) {
	t.Parallel()
	_, err := zookeeper.OpenWith(redlatch.Config{TTL: 31 * time.Second}, zookeeper.Ensemble{Servers: common(t).Addrs(), Root: enginetest.Root(t)})
	if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "maxSessionTimeout") || !strings.Contains(err.Error(), "1m0s") {
		t.Error(err)
	}
}

// Servers that keep sessions to themselves, and make none of them known to all when a lock needs that, grant nothing; the
// error, and Examine, have the setting to change. With it there are locks.
func TestLocalSessions(t *testing.T) {
	reconnects(t)
	t.Parallel()
	e := own(t, longSessions, "localSessionsEnabled=true")
	leader, followers := e.Leader()
	for name, server := range map[string]*ensembletest.ZooKeeperServer{"leader": leader, "follower": followers[0]} {
		ensemble := zookeeper.Ensemble{Servers: []string{server.Addr()}, Root: enginetest.Root(t) + name}
		says := func(client *redlatch.Client) bool {
			_, err := client.TryLock(t.Context(), "name")
			if err == nil {
				t.Fatalf("%s: it is granted", name)
			}
			return strings.Contains(err.Error(), "localSessionsUpgradingEnabled") && errors.Is(err, redlatch.ErrRefused) == (server == leader)
		}
		examined := func() bool {
			return enginetest.Says(examine(t, enginetest.Patient, ensemble), true, "", "localSessionsUpgradingEnabled")
		}
		enginetest.Await(t, name+": Examine says so of a new root", examined)
		client := open(t, enginetest.Patient, ensemble)
		enginetest.Await(t, name+": it says so", func() bool { return says(client) })
		enginetest.Await(t, name+": Examine says so", examined)
	}
	e = own(t, longSessions, "localSessionsEnabled=true", "localSessionsUpgradingEnabled=true")
	leader, followers = e.Leader()
	root := enginetest.Root(t)
	held := enginetest.Lock(t, open(t, enginetest.Patient, zookeeper.Ensemble{Servers: []string{followers[0].Addr()}, Root: root}), "name")
	ensemble := zookeeper.Ensemble{Servers: []string{leader.Addr()}, Root: root}
	other := open(t, enginetest.Patient, ensemble)
	enginetest.Await(t, "another finds it held", func() bool {
		_, err := other.TryLock(t.Context(), "name")
		return errors.Is(err, redlatch.ErrHeld)
	})
	enginetest.Await(t, "Examine finds nothing wrong", func() bool { return len(examine(t, enginetest.Patient, ensemble).Problems) == 0 })
	enginetest.Unlock(t, held)
}

// Servers that hold the root to a quota which is used up grant nothing, and the error says what to do. What is held can be
// extended and released.
func TestQuota(t *testing.T) {
	t.Parallel()
	e := own(t, longSessions, "enforceQuota=true")
	ensemble := zookeeper.Ensemble{Servers: e.Addrs(), Root: "/locks"}
	client, conn := open(t, enginetest.Patient, ensemble), connect(t, e)
	held := enginetest.Lock(t, client, "held")
	for _, node := range [][2]string{{"", ""}, {"/zookeeper_limits", "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=5"}, {"/zookeeper_stats", "count=5,bytes=0"}} {
		if _, err := conn.Create("/zookeeper/quota/locks"+node[0], []byte(node[1]), zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	enginetest.Await(t, "it says so", func() bool {
		l, err := client.TryLock(t.Context(), "other")
		if err == nil { // the client's server has not heard of the quota yet
			enginetest.Unlock(t, l)
			return false
		}
		return errors.Is(err, redlatch.ErrNoQuorum) && strings.Contains(err.Error(), "setquota")
	})
	enginetest.Extend(t, held)
	enginetest.Unlock(t, held)
}

// connect is a client of the tests' own, for what others do.
func connect(t *testing.T, e *ensembletest.ZooKeeper) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect(e.Addrs(), 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func TestRootOfOthers(t *testing.T) {
	t.Parallel()
	e := common(t)
	root := enginetest.Root(t)
	conn := connect(t, e)
	if _, err := conn.Create(root, []byte("theirs"), zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	_, err := zookeeper.OpenWith(enginetest.Config, zookeeper.Ensemble{Servers: e.Addrs(), Root: root})
	if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), root) || !strings.Contains(err.Error(), "theirs") {
		t.Error(err)
	}
	if children, _, err := conn.Children(root); err != nil || len(children) != 0 {
		t.Errorf("it has %v, %v", children, err)
	}
}

// Somebody deletes the root, and another client makes it anew: a client that was there before grants nothing any
// more, as its tokens would be smaller than those of the other.
func TestRootIsDeleted(t *testing.T) {
	t.Parallel()
	e := common(t)
	ensemble := zookeeper.Ensemble{Servers: e.Addrs(), Root: enginetest.Root(t)}
	client, conn := open(t, enginetest.Patient, ensemble), connect(t, e)
	enginetest.Unlock(t, enginetest.Lock(t, client, "name"))
	deleteAll(t, conn, ensemble.Root)
	other := enginetest.Lock(t, open(t, enginetest.Patient, ensemble), "name")
	enginetest.Unlock(t, other)
	var lock *redlatch.Lock
	var err error
	enginetest.Await(t, "there is an answer", func() bool { // on a busy machine a session may have to be made anew
		lock, err = client.TryLock(t.Context(), "name")
		return !errors.Is(err, redlatch.ErrNoQuorum)
	})
	if err == nil {
		t.Errorf("the token %d after %d", lock.Token(), other.Token())
	} else if !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), ensemble.Root) {
		t.Error(err)
	}
}

// A client comes from one ensemble to another, where it is granted nothing: its locks are in the first. The error says
// what may be wrong with the servers that were given, whether others lock in the second or not.
func TestServersOfTwoEnsembles(t *testing.T) {
	reconnects(t)
	t.Parallel()
	a, b := own(t, longSessions), common(t)
	for name, used := range map[string]bool{"used": true, "unused": false} {
		proxy := redistest.NewProxy(t, a.Addrs()[0])
		ensemble := zookeeper.Ensemble{Servers: []string{proxy.Addr()}, Root: enginetest.Root(t) + name}
		client := open(t, enginetest.Patient, ensemble)
		enginetest.Unlock(t, enginetest.Lock(t, client, "name"))
		if used {
			other := open(t, enginetest.Patient, zookeeper.Ensemble{Servers: b.Addrs(), Root: ensemble.Root})
			enginetest.Unlock(t, enginetest.Lock(t, other, "name"))
		}
		overtake(t, connect(t, b), connect(t, a), ensemble.Root+"-count")
		proxy.Retarget(b.Addrs()[0])
		proxy.Cut()
		var err error
		enginetest.Await(t, "it is refused", func() bool {
			_, err = client.TryLock(t.Context(), "name")
			return errors.Is(err, redlatch.ErrRefused)
		})
		if !strings.Contains(err.Error(), "Ensemble.Servers") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A client comes to servers that have less than it has seen, as those of another ensemble, or of its own that were restored
// from a backup. They refuse it without a word; the error says what that may be.
func TestServersThatHaveLess(t *testing.T) {
	reconnects(t)
	t.Parallel()
	a, b := own(t), common(t)
	proxy := redistest.NewProxy(t, b.Addrs()[0])
	ensemble := zookeeper.Ensemble{Servers: []string{proxy.Addr()}, Root: enginetest.Root(t)}
	overtake(t, connect(t, b), connect(t, a), ensemble.Root+"-count")
	client := open(t, enginetest.Patient, ensemble)
	enginetest.Unlock(t, enginetest.Lock(t, client, "name"))
	proxy.Retarget(a.Addrs()[0])
	proxy.Cut()
	var err error
	enginetest.Await(t, "it says what that may be", func() bool {
		_, err = client.TryLock(t.Context(), "name")
		return errors.Is(err, redlatch.ErrNoQuorum) && strings.Contains(err.Error(), "backup")
	})
}

// overtake has more happen in one ensemble than has happened in another, as servers refuse a client that has seen more than
// they have.
func overtake(t *testing.T, one, other *zk.Conn, path string) {
	t.Helper()
	happened := func(conn *zk.Conn) int64 {
		path, err := conn.Create(path, nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
		if err != nil {
			t.Fatal(err)
		}
		_, stat, err := conn.Get(path)
		if err != nil {
			t.Fatal(err)
		}
		return stat.Czxid
	}
	for past := happened(other) + 100; happened(one) < past; {
	}
}

// deleteAll deletes a node and all that is under it.
func deleteAll(t *testing.T, conn *zk.Conn, path string) {
	t.Helper()
	children, _, err := conn.Children(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, child := range children {
		deleteAll(t, conn, path+"/"+child)
	}
	if err := conn.Delete(path, -1); err != nil {
		t.Fatal(err)
	}
}

// With a user, what is created is for that user alone; another is refused in the server's words.
func TestUser(t *testing.T) {
	t.Parallel()
	e := common(t)
	ensemble := zookeeper.Ensemble{Servers: e.Addrs(), Root: enginetest.Root(t) + "/locks", User: "me", Password: "secret"}
	mine := open(t, enginetest.Patient, ensemble)
	held := enginetest.Lock(t, mine, "name")
	for name, other := range map[string]zookeeper.Ensemble{
		"nobody":         {Servers: ensemble.Servers, Root: ensemble.Root},
		"other password": {Servers: ensemble.Servers, Root: ensemble.Root, User: "me", Password: "wrong"},
	} {
		_, err := open(t, enginetest.Patient, other).TryLock(t.Context(), "name")
		if !errors.Is(err, redlatch.ErrRefused) || !errors.Is(err, zk.ErrNoAuth) || !strings.Contains(err.Error(), "Ensemble.User") || strings.Contains(err.Error(), "wrong") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := open(t, enginetest.Patient, ensemble).TryLock(t.Context(), "name"); !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("the same user: %v", err)
	}
	enginetest.Unlock(t, held)
}

// A TTL that is no whole number of milliseconds needs no longer sessions than the servers permit.
func TestFractionOfAMillisecond(t *testing.T) {
	t.Parallel()
	c := redlatch.Config{TTL: 10 * time.Second / 3}
	ensemble := zookeeper.Ensemble{Servers: common(t).Addrs(), Root: enginetest.Root(t)}
	enginetest.Unlock(t, enginetest.Lock(t, open(t, c, ensemble), "name"))
	report, err := zookeeper.Examine(t.Context(), c, ensemble)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		if p.Unusable {
			t.Errorf("%+v", p)
		}
	}
}

func TestNoMeaning(t *testing.T) { engine.NoMeaning(t) }
func TestTLS(t *testing.T)       { engine.TLS(t) }

func TestOpenURL(t *testing.T) {
	t.Parallel()
	e, root := common(t), enginetest.Root(t)
	client, err := zookeeper.OpenURL(enginetest.Patient, "zk://"+strings.Join(e.Addrs(), ",")+root)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	held := enginetest.Lock(t, client, "name")
	other := open(t, enginetest.Patient, zookeeper.Ensemble{Servers: e.Addrs(), Root: root})
	if _, err := other.TryLock(t.Context(), "name"); !errors.Is(err, redlatch.ErrHeld) {
		t.Errorf("elsewhere: %v", err)
	}
	enginetest.Unlock(t, held)
	secure := enginetest.Config
	secure.TLS = new(tls.Config)
	for url, c := range map[string]redlatch.Config{"etcd://127.0.0.1": enginetest.Config, "zk://127.0.0.1/a/": enginetest.Config, "zk://127.0.0.1": secure} {
		if _, err := zookeeper.OpenURL(c, url); !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("%s: %v", url, err)
		}
	}
}
