package faults

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// refused expects that TryLock and Lock give the server's own words at once,
// as a refusal and never as "held".
func refused(t *testing.T, client *redlatch.Client, name string, words ...string) {
	t.Helper()
	attempts := map[string]func() (*redlatch.Lock, error){
		"TryLock": func() (*redlatch.Lock, error) { return locktest.TryInTime(t, client, name) },
		"Lock":    func() (*redlatch.Lock, error) { return client.Lock(locktest.Within(t, locktest.Patience), name) },
	}
	for what, attempt := range attempts {
		lock, err := attempt()
		if lock != nil {
			t.Errorf("%s: held", what)
			continue
		}
		if !errors.Is(err, redlatch.ErrRefused) || errors.Is(err, redlatch.ErrHeld) || errors.Is(err, redlatch.ErrNoQuorum) {
			t.Errorf("%s is not refused: %v", what, err)
		}
		for _, w := range words {
			if !strings.Contains(fmt.Sprint(err), w) {
				t.Errorf("%s does not pass on %q: %v", what, w, err)
			}
		}
		if failure, ok := errors.AsType[*redlatch.QuorumError](err); !ok || failure.Nodes[0].Verdict != redlatch.VoteRefused {
			t.Errorf("%s does not tell of the node: %#v", what, err)
		}
	}
}

// What is no string is a lock of another library, such as Redisson's hash: the
// error says so, beside the server's words.
func TestWrongType(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		nodes := locktest.SharedOf(t, binary, 3)
		client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
		for _, kind := range [][]string{{"RPUSH", "x"}, {"HSET", "f", "x"}, {"SADD", "x"}, {"XADD", "*", "f", "x"}} {
			name := t.Name() + kind[0]
			for _, s := range nodes[:2] {
				locktest.Do(t, s, append([]string{kind[0], name}, kind[1:]...)...)
			}
			refused(t, client, name, "held by a lock of another kind (WRONGTYPE Operation against a key")
			// Nothing of ours is left where it was free.
			locktest.AwaitValue(t, nodes[2], name, "")
			for _, s := range nodes[:2] {
				locktest.Do(t, s, "DEL", name)
			}
			locktest.Unlock(t, locktest.TryLock(t, client, name))
		}
	})
}

// Most nodes refuse, and the last of them answers late; one is held by another.
// That the lock is held is not what stands in the way: it would not be had when
// it is free.
func TestRefusedByMostAndHeldByOne(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	proxies := redistest.Proxies(t, nodes)
	client := locktest.Open(t, locktest.Config(locktest.ProxyURLs(proxies)...))
	locktest.Do(t, nodes[0], "RPUSH", t.Name(), "x")
	locktest.Do(t, nodes[1], "RPUSH", t.Name(), "x")
	locktest.Do(t, nodes[2], "SET", t.Name(), "theirs", "PX", "60000")
	proxies[1].Delay(redistest.Replies, 50*time.Millisecond, 0)
	refused(t, client, t.Name(), "WRONGTYPE")
	proxies[1].Delay(redistest.Replies, 0, 0)
	proxies[2].Delay(redistest.Replies, 50*time.Millisecond, 0)
	refused(t, client, t.Name(), "WRONGTYPE")
	for _, s := range nodes {
		locktest.Do(t, s, "DEL", t.Name())
	}
}

// One node's refusal leaves a quorum.
func TestRefusalOfAMinority(t *testing.T) {
	t.Parallel()
	nodes := locktest.Shared(t, 3)
	client := locktest.Open(t, locktest.Config(redistest.URLs(nodes)...))
	locktest.Do(t, nodes[1], "RPUSH", t.Name(), "x")
	locktest.Unlock(t, locktest.TryLock(t, client, t.Name()))
	if n := locktest.Do(t, nodes[1], "LLEN", t.Name()); n != int64(1) {
		t.Errorf("the list has %v elements", n)
	}
	locktest.Do(t, nodes[1], "DEL", t.Name())
}

// Users of the server who may not do what is needed.
func TestNoPermission(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		users := map[string]string{
			"nokeys":    "on >secret ~other:* +@all",
			"noscripts": "on >secret ~* +@all -@scripting",
			"noset":     "on >secret ~* +@all -set",
			"noinfo":    "on >secret ~* +@all -info",
			"readonly":  "on >secret %R~* +@all",
			"nothing":   "on >secret ~* -@all",
		}
		var acl []string
		for user, rules := range users {
			acl = append(acl, user+" "+rules)
		}
		server := redistest.New(t, redistest.Options{Binary: binary, Users: append(acl, "enough on >secret ~* +@all")})
		for user := range users {
			t.Run(user, func(t *testing.T) {
				client := locktest.Open(t, locktest.Config(server.URLAs(user, "secret")))
				refused(t, client, t.Name())
				_, err := client.TryLock(t.Context(), t.Name())
				if text := fmt.Sprint(err); !strings.Contains(text, "NOPERM") && !strings.Contains(text, "permission") && !strings.Contains(text, "can't run this command") {
					t.Errorf("the server's words are missing: %v", err)
				}
				if v := locktest.Value(t, server, t.Name()); v != "" {
					t.Errorf("left: %q", v)
				}
			})
		}
		client := locktest.Open(t, locktest.Config(server.URLAs("enough", "secret")))
		locktest.Unlock(t, locktest.TryLock(t, client, "x"))
	})
}

// Permissions are taken away while a lock is held: extension and release tell
// the server's words, and the lock is held as long as it was.
func TestPermissionIsTakenAway(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{Users: []string{"alice on >secret ~* +@all"}})
	client := locktest.Open(t, locktest.Config(server.URLAs("alice", "secret")))
	lock := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())
	locktest.Do(t, server, "ACL", "SETUSER", "alice", "resetkeys", "~other:*")
	if err := lock.Extend(t.Context(), locktest.TTL); !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("extend: %v", err)
	}
	if lock.Err() != nil {
		t.Errorf("the lock is %v", lock.Err())
	}
	if err := lock.Unlock(t.Context()); !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("unlock: %v", err)
	}
	refused(t, client, "y", "NOPERM")
}

// The permission for some of the locks that a client holds is taken away: the others are renewed as before, although one
// command is to renew both.
func TestPermissionForSomeIsTakenAway(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		const many, ttl = 40, 6 * time.Second
		server := redistest.New(t, redistest.Options{Binary: binary, Users: []string{"alice on >secret ~* &* +@all"}})
		client := locktest.Open(t, locktest.Config(server.URLAs("alice", "secret")))
		var kept, denied []*redlatch.Lock
		for i := range many {
			kept = append(kept, locktest.TryLock(t, client, fmt.Sprint("kept-", i), redlatch.WithTTL(ttl)))
			denied = append(denied, locktest.TryLock(t, client, fmt.Sprint("denied-", i), redlatch.WithTTL(ttl)))
		}
		locktest.Do(t, server, "ACL", "SETUSER", "alice", "resetkeys", "~kept-*", "~redlatch:*")
		locktest.Await(t, "what is not permitted is lost", func() bool {
			return !slices.ContainsFunc(denied, func(l *redlatch.Lock) bool { return l.Err() == nil })
		})
		for _, l := range kept {
			if err := l.Err(); err != nil {
				t.Fatalf("%s: %v", l.Name(), err)
			}
		}
	})
}

// A replica never votes, whether it is one from the start or became one, and may be a master again; and
// what it says of writing reaches the caller.
func TestReplicaIsRefused(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		master := redistest.New(t, redistest.Options{Binary: binary})
		replica := redistest.NewReplica(t, master)
		refused(t, locktest.Open(t, locktest.Config(replica.URL())), "x", "replica", "name its master")

		// Demoted under a client that has seen it as a master.
		other := redistest.New(t, redistest.Options{Binary: binary})
		client := locktest.Open(t, locktest.Config(other.URL()))
		locktest.Unlock(t, locktest.TryLock(t, client, "x"))
		host, port, _ := strings.Cut(master.Addr(), ":")
		locktest.Do(t, other, "REPLICAOF", host, port)
		if err := other.AwaitLink(locktest.Within(t, locktest.Patience)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			locktest.Await(t, "it says that it is a replica", func() bool {
				_, err := client.TryLock(t.Context(), "x")
				return errors.Is(err, redlatch.ErrNoQuorum) && strings.Contains(err.Error(), "replica")
			})
		}
	})
}

// A Sentinel that is named as if it were its master is said to be one, and not only to know no scripts.
func TestSentinelIsRefused(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		o := redistest.Options{Binary: binary}
		sentinel := redistest.NewSentinel(t, "main", redistest.New(t, o), 1, o)
		c := locktest.WithQuarantine(sentinel.URL())
		refused(t, locktest.Open(t, c), "x", "a Sentinel", "?master_set=")
		refused(t, locktest.Open(t, locktest.Config(sentinel.URL())), "x", "a Sentinel")
		if reason := locktest.Examine(t, c)[0].Reason; reason == nil || !strings.Contains(reason.Error(), "a Sentinel") {
			t.Errorf("examined: %v", reason)
		}
	})
}

// Names, passwords and certificates that do not fit: Open takes them, since a
// node may be mended, and the first lock says what is wrong, in the words of
// the server or of TLS, without the password.
func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		secret := redistest.New(t, redistest.Options{Binary: binary, Password: "right"})
		secure := redistest.New(t, redistest.Options{Binary: binary, TLS: true})
		mutual := redistest.New(t, redistest.Options{Binary: binary, TLS: true, TLSClientAuth: true})
		bare := mutual.TLSConfig()
		bare.Certificates, bare.GetClientCertificate = nil, nil
		another := secure.TLSConfig()
		another.ServerName = "another.example"
		cases := []struct {
			name, url string
			tls       *tls.Config
			words     string
		}{
			{"wrong password", secret.URLAs("", "hunter2"), nil, "WRONGPASS"},
			{"unknown user", secret.URLAs("nobody", "hunter2"), nil, "WRONGPASS"},
			{"no password", "redis://" + secret.Addr(), nil, "NOAUTH"},
			{"unknown authority", secure.URL(), nil, "unknown authority"},
			{"another name", secure.URL(), another, "another.example"},
			{"no client certificate", mutual.URL(), bare, "certificate"},
		}
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				cfg := locktest.Config(c.url)
				cfg.TLS = c.tls
				client := locktest.Open(t, cfg)
				refused(t, client, "x", c.words)
				if _, err := client.TryLock(t.Context(), "x"); strings.Contains(fmt.Sprint(err), "hunter2") {
					t.Errorf("the password is told: %v", err)
				}
			})
		}
		// The right ones.
		cfg := locktest.Config(mutual.URL())
		cfg.TLS = mutual.TLSConfig()
		locktest.Unlock(t, locktest.TryLock(t, locktest.Open(t, cfg), "x"))
		locktest.Unlock(t, locktest.TryLock(t, locktest.Open(t, locktest.Config(secret.URL())), "x"))
	})
}

// A password that is mended on the server is enough: the client need not be
// opened anew.
func TestRefusalIsNotForEver(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{Users: []string{"alice on >secret ~* +@all"}})
	client := locktest.Open(t, locktest.Config(server.URLAs("alice", "other")))
	refused(t, client, "x", "WRONGPASS")
	locktest.Do(t, server, "ACL", "SETUSER", "alice", ">other")
	locktest.Await(t, "the lock is acquired", func() bool {
		lock, err := client.TryLock(t.Context(), "x")
		if err != nil {
			return false
		}
		locktest.Unlock(t, lock)
		return true
	})
}

// A release that comes while the client cannot log in is done when it can again.
func TestReleaseAfterARefusedLogin(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{Users: []string{"alice on >secret ~* &* +@all"}})
	client := locktest.Open(t, locktest.Config(server.URLAs("alice", "secret")))
	lock := locktest.TryLock(t, client, "x")
	locktest.Do(t, server, "ACL", "SETUSER", "alice", "resetpass", ">other")
	locktest.Do(t, server, "CLIENT", "KILL", "USER", "alice")
	if err := lock.Unlock(t.Context()); err == nil {
		t.Fatal("it was released")
	}
	locktest.Do(t, server, "ACL", "SETUSER", "alice", ">secret")
	locktest.AwaitValue(t, server, "x", "")
}
