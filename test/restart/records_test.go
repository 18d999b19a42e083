package restart

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A MaxTTL that no node could be kept out for is refused before anything is sent.
func TestMaxTTLBeyondADay(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, locktest.Shared(t, 1)[0].Addr())
	for _, maxTTL := range []time.Duration{24*time.Hour + time.Millisecond, 1000 * time.Hour, math.MaxInt64} {
		for _, quarantine := range []bool{true, false} {
			c := locktest.Config(proxy.URL())
			c.MaxTTL, c.NoQuarantine = maxTTL, !quarantine
			client, err := redlatch.Open(c)
			if err == nil {
				client.Close()
			}
			if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), "Config.MaxTTL") || !strings.Contains(err.Error(), "24h") {
				t.Errorf("%v: got %v, want ErrInvalid that names Config.MaxTTL and 24h", maxTTL, err)
			}
		}
		c := locktest.Config(proxy.URL())
		c.TTL = maxTTL // which is the MaxTTL of those who name none
		if client, err := redlatch.Open(c); !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("TTL %v: got %v, want ErrInvalid", maxTTL, err)
			if err == nil {
				client.Close()
			}
		}
	}
	if stats := proxy.Stats(); stats.Accepted != 0 {
		t.Errorf("%d connections were made", stats.Accepted)
	}
	c := locktest.Config(proxy.URL())
	c.MaxTTL = 24 * time.Hour
	locktest.Unlock(t, locktest.TryLock(t, locktest.Open(t, c), "day"))
}

// Keys of the deployment are data from outside. What no client has written is named, or else
// waited for no longer than a quarantine, and Reset mends it.
func TestForeignRecordsOfADeployment(t *testing.T) {
	t.Parallel()
	record := func(ms string) []string {
		return []string{"SET", "deployment", `{"run":"r","replication_id":"i","nodes":{"n0":""},"max_ttl_ms":` + ms + `}`}
	}
	note := func(text string) []string { return []string{"SET", "quarantine", text} }
	const since5000 = "95617584000"
	cases := []struct {
		name    string
		command []string
		// named: the key is named in an error that waiting does not cure. Otherwise the node is
		// in quarantine, or votes when it is trusted.
		named, trusted bool
	}{
		{"MaxTTL of 292 years", record("9223372036854"), true, false},
		{"MaxTTL beyond int64", record("9223372036854775808"), true, false},
		{"MaxTTL whose product overflows", record("9223372036854775807"), true, false},
		{"MaxTTL beyond a day", record("86400001"), true, false},
		{"MaxTTL of nothing", record("0"), true, false},
		{"negative MaxTTL", record("-1000"), true, false},
		{"negative MaxTTL whose product overflows", record("-9223372036860"), true, false},
		{"no nodes", []string{"SET", "deployment", `{"max_ttl_ms":1000}`}, true, false},
		{"garbage", []string{"SET", "deployment", "\x00 garbage \xff"}, true, false},
		{"null", []string{"SET", "deployment", "null"}, true, false},
		{"a list of records", []string{"SET", "deployment", "[]"}, true, false},
		{"a hash", []string{"HSET", "deployment", "a", "b"}, true, false},
		{"a note of the year 5000", note("RUN ID 0 " + since5000 + " 5"), false, false},
		{"a note of ten years", note("RUN ID 0 NOW 315360000"), false, false},
		{"a note whose sum overflows", note("RUN ID 0 NOW 9223372036854775807"), false, false},
		{"a note of another run, of ten years", note(strings.Repeat("0", 40) + " ID 0 NOW 315360000"), false, true},
		{"a note of another run, of the year 5000", note(strings.Repeat("0", 40) + " ID 0 " + since5000 + " 0"), false, true},
		{"a note of before it was noted how", note("RUN"), false, false},
		{"garbage for a note", note("\xff\x00 1 2 3 4 5 6"), false, false},
		{"a list for a note", []string{"RPUSH", "quarantine", "a"}, true, false},
		{"garbage for an admission", []string{"SET", "admitted", "x"}, false, true},
		{"an admission of the year 5000", []string{"SET", "admitted", strings.Repeat("0", 32) + " RUN ID " + since5000 + "000000"}, false, true},
		{"a set for an admission", []string{"SADD", "admitted", "x"}, false, true},
	}
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				s := locktest.SharedOf(t, binary, 1)[0]
				conf := locktest.WithMaxTTL(locktest.WithQuarantine(s.URL()), 20*time.Second)
				client := locktest.Open(t, conf)
				locktest.Vouch(t, client, "n0")
				locktest.Unlock(t, locktest.TryLock(t, client, conf.Deployment))

				key := fmt.Sprintf("redlatch:{%s}:%s", conf.Deployment, c.command[1])
				write(t, s, key, c.command)
				locktest.Do(t, s, "DEL", fmt.Sprintf("redlatch:{%s}:admitted", conf.Deployment))
				if c.command[1] == "admitted" {
					write(t, s, key, c.command)
				}
				for what, client := range map[string]*redlatch.Client{"a client that was there": client, "one that comes": locktest.Open(t, conf)} {
					lock, err := awaitAnswerOf(t, client, conf.Deployment)
					switch {
					case c.trusted:
						if err != nil {
							t.Fatalf("%s: %v", what, err)
						}
						locktest.Unlock(t, lock)
					case c.named:
						const remedy = "redlatch deployment set"
						if !errors.Is(err, redlatch.ErrRefused) || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), remedy) {
							t.Errorf("%s: lock %v, error %v, want ErrRefused that names %q and %q", what, lock, err, key, remedy)
						}
					case !errors.Is(err, redlatch.ErrNotAdmitted):
						t.Errorf("%s: lock %v, error %v, want ErrNotAdmitted", what, lock, err)
					default: // a second for two readings of the clock
						if left := locktest.VerdictOf(t, err, 0).Left; left <= 0 || left > conf.MaxTTL+5*time.Second {
							t.Errorf("%s: %v left", what, left)
						}
					}
				}
				node := locktest.Examine(t, conf)[0]
				if c.named && (node.Status != doctor.StatusUnfit || !strings.Contains(fmt.Sprint(node.Reason), key)) {
					t.Errorf("examined, it is %v because of %v", node.Status, node.Reason)
				}

				if err := client.Reset(t.Context(), "n0"); err != nil {
					t.Fatal(err)
				}
				_, err := locktest.AwaitAnswer(t, client, conf.Deployment)
				if !errors.Is(err, redlatch.ErrNotAdmitted) {
					t.Fatalf("reset: %v, want ErrNotAdmitted", err)
				}
				if left := locktest.VerdictOf(t, err, 0).Left; left <= 0 || left > conf.MaxTTL+5*time.Second {
					t.Errorf("reset: %v left", left)
				}
				locktest.Vouch(t, client, "n0")
				locktest.Unlock(t, locktest.TryLock(t, client, conf.Deployment))
				locktest.Unlock(t, locktest.TryLock(t, locktest.Open(t, conf), conf.Deployment))
			})
		}
	})
}

// A node that has no record is judged by those of the others. While too few of these can be asked, it does not vote, and nothing is written
// there.
func TestTooFewRecordsCanBeAsked(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		nodes := redistest.Nodes(t, 3, redistest.Options{Binary: binary})
		proxies := redistest.Proxies(t, nodes[1:])
		for _, p := range proxies {
			if err := p.Refuse(true); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range nodes {
			awaitUptime(t, s, locktest.RestartQuarantine)
		}
		client := locktest.Open(t, locktest.WithQuarantine(nodes[0].URL(), proxies[0].URL(), proxies[1].URL()))
		locktest.Await(t, "it is known that the others cannot be asked", func() bool {
			_, err := client.TryLock(t.Context(), "x")
			return err != nil && strings.Contains(err.Error(), "too few others answer")
		})
		if keys := locktest.Do(t, nodes[0], "KEYS", "*").([]any); len(keys) > 0 {
			t.Errorf("there are the keys %q", keys)
		}
		if err := proxies[0].Refuse(false); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Lock(locktest.Within(t, locktest.Patience), "y"); err != nil {
			t.Errorf("one of the others can be asked: %v", err)
		}
	})
}

// An admission that somebody has faked admits no client that the node would refuse, whatever its
// length: neither one with other settings, nor any while the node is in quarantine.
func TestFakedAdmissionAdmitsNobody(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		s := locktest.SharedOf(t, binary, 1)[0]
		conf := locktest.WithMaxTTL(locktest.WithQuarantine(s.URL()), 20*time.Second)
		client := locktest.Open(t, conf)
		locktest.Vouch(t, client, "n0")
		locktest.Unlock(t, locktest.TryLock(t, client, conf.Deployment))

		key := fmt.Sprintf("redlatch:{%s}:admitted", conf.Deployment)
		refused := func(client *redlatch.Client, want error) {
			t.Helper()
			for range 5 {
				locktest.Do(t, s, "SET", key, "x")
				if lock, err := awaitAnswerOf(t, client, conf.Deployment); !errors.Is(err, want) {
					t.Fatalf("lock %v, error %v, want %v", lock, err, want)
				}
			}
		}
		refused(locktest.Open(t, locktest.WithMaxTTL(conf, 10*time.Second)), redlatch.ErrRefused)
		if err := client.Reset(t.Context(), "n0"); err != nil {
			t.Fatal(err)
		}
		refused(client, redlatch.ErrNotAdmitted)
		refused(locktest.Open(t, conf), redlatch.ErrNotAdmitted)
	})
}

// awaitAnswerOf is awaitAnswer for a node whose refusal is an answer.
func awaitAnswerOf(t *testing.T, client *redlatch.Client, name string) (*redlatch.Lock, error) {
	t.Helper()
	var lock *redlatch.Lock
	var err error
	locktest.Await(t, "an answer of the node", func() bool {
		lock, err = client.TryLock(t.Context(), name)
		return err == nil || !errors.Is(err, redlatch.ErrNoQuorum) && (!errors.Is(err, redlatch.ErrNotAdmitted) || locktest.VerdictOf(t, err, 0).Left > 0)
	})
	return lock, err
}

// write runs the command with the key and this server in place of the words for them.
func write(t *testing.T, s *redistest.Server, key string, command []string) {
	t.Helper()
	info, err := s.Info("server", "replication")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.NewReplacer("RUN", info["run_id"], "ID", info["master_replid"], "NOW", fmt.Sprint(locktest.ServerTime(t, s).Unix()))
	args := []string{command[0], key}
	for _, arg := range command[2:] {
		args = append(args, words.Replace(arg))
	}
	locktest.Do(t, s, "DEL", key)
	locktest.Do(t, s, args...)
}
