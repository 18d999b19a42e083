package guardtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/fence"
	"github.com/redlatch/redlatch/internal/redistest"
)

// eachRedis runs test on every kind of server with both clients.
func eachRedis(t *testing.T, test func(t *testing.T, server *redistest.Server, eval fence.Eval)) {
	for _, flavor := range redistest.Flavors() {
		t.Run(flavor+"/go-redis", func(t *testing.T) {
			server := redistest.New(t, redistest.Options{Binary: flavor})
			test(t, server, goredisEval(goredisClient(t, server)))
		})
		t.Run(flavor+"/rueidis", func(t *testing.T) {
			server := redistest.New(t, redistest.Options{Binary: flavor})
			test(t, server, rueidisEval(rueidisClient(t, server)))
		})
	}
}

// do sends one command that must not fail and returns the reply as text.
func do(t *testing.T, server *redistest.Server, args ...string) string {
	t.Helper()
	reply, err := server.Do(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return fmt.Sprint(reply)
}

func open(t *testing.T, guard fence.Redis, key string, token uint64) *fence.Access {
	t.Helper()
	a, err := guard.Open(t.Context(), key, token)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestRedisValues(t *testing.T) {
	eachRedis(t, func(t *testing.T, server *redistest.Server, eval fence.Eval) {
		ctx := t.Context()
		var reply any
		guard := fence.Redis{Eval: func(ctx context.Context, script string, keys, args []string) (_ any, err error) {
			reply, err = eval(ctx, script, keys, args)
			return reply, err
		}}
		a := open(t, guard, "s", 33)
		if value, ok, err := a.Get(ctx); ok || value != "" || err != nil {
			t.Errorf("absent: %q, %t, %v", value, ok, err)
		}
		if parts, ok := reply.([]any); !ok || len(parts) != 1 {
			t.Errorf("%v for an absent key: a nil in an array is more than some clients can read", reply)
		}
		for _, want := range []string{"x", "", "\x00\r\n\xff", "ok", "stale", strings.Repeat("y", 1<<20)} {
			if err := a.Set(ctx, want, 0); err != nil {
				t.Fatal(err)
			}
			if value, ok, err := a.Get(ctx); !ok || value != want || err != nil {
				t.Errorf("%.20q: got %.20q, %t, %v", want, value, ok, err)
			}
		}
		if err := a.Set(ctx, "x", time.Hour); err != nil {
			t.Fatal(err)
		}
		if ms, err := strconv.Atoi(do(t, server, "PTTL", "s")); err != nil || ms < 3_500_000 || ms > 3_600_000 {
			t.Errorf("PTTL %d, %v", ms, err)
		}
		if err := a.Set(ctx, "x", 0); err != nil {
			t.Fatal(err)
		}
		if ttl := do(t, server, "PTTL", "s"); ttl != "-1" {
			t.Errorf("PTTL %s after a Set for ever", ttl)
		}
		if err := a.Del(ctx); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := a.Get(ctx); ok || err != nil {
			t.Errorf("deleted: %t, %v", ok, err)
		}
		wantStale(t, guard.Enter(ctx, "s", 32), 32, 33) // the guard outlives the key

		h := open(t, guard, "h", 33)
		if fields, err := h.HGetAll(ctx); err != nil || len(fields) != 0 {
			t.Errorf("absent: %v, %v", fields, err)
		}
		want := map[string]string{"": "", "f": "\x00\xff"}
		for i := range 10_000 { // more than Lua hands over at once
			want[fmt.Sprint("field", i)] = fmt.Sprint(i)
		}
		if err := h.HSet(ctx, want); err != nil {
			t.Fatal(err)
		}
		if err := h.HSet(ctx, map[string]string{"f": "new"}); err != nil {
			t.Fatal(err)
		}
		want["f"] = "new"
		if fields, err := h.HGetAll(ctx); err != nil || !maps.Equal(fields, want) {
			t.Errorf("%d fields, %v, want %d", len(fields), err, len(want))
		}
	})
}

// TestRedisRefusals pins that every method compares, and that a refused one changes nothing.
func TestRedisRefusals(t *testing.T) {
	eachRedis(t, func(t *testing.T, server *redistest.Server, eval fence.Eval) {
		ctx := t.Context()
		guard := fence.Redis{Eval: eval}
		s, h := open(t, guard, "s", 33), open(t, guard, "h", 33)
		if err := errors.Join(s.Set(ctx, "old", 0), h.HSet(ctx, map[string]string{"f": "old"})); err != nil {
			t.Fatal(err)
		}
		open(t, guard, "s", 34)
		open(t, guard, "h", 34)
		for name, refused := range map[string]func() error{
			"Enter":   func() error { return guard.Enter(ctx, "s", 33) },
			"Get":     func() error { _, _, err := s.Get(ctx); return err },
			"Set":     func() error { return s.Set(ctx, "late", 0) },
			"Set TTL": func() error { return s.Set(ctx, "late", time.Hour) },
			"Del":     func() error { return s.Del(ctx) },
			"HGetAll": func() error { _, err := h.HGetAll(ctx); return err },
			"HSet":    func() error { return h.HSet(ctx, map[string]string{"f": "late"}) },
			"Run":     func() error { _, err := s.Run(ctx, "redis.call('SET', 's', 'late')", nil, nil); return err },
		} {
			t.Run(name, func(t *testing.T) { wantStale(t, refused(), 33, 34) })
		}
		if s, h := do(t, server, "GET", "s"), do(t, server, "HGET", "h", "f"); s != "old" || h != "old" {
			t.Errorf("written by a refused access: %q, %q", s, h)
		}
	})
}

// TestRedisTokensAreExact pins that neighbours near 2^53 and of different length are told apart, and that what is stored
// is the text that was sent.
func TestRedisTokensAreExact(t *testing.T) {
	eachRedis(t, func(t *testing.T, server *redistest.Server, eval fence.Eval) {
		guard := fence.Redis{Eval: eval}
		for _, token := range []uint64{1, 2, 9, 10, 99, 100, 999_999_999_999_999, 1_000_000_000_000_000, 1_760_000_000_000_000,
			1_760_000_000_000_001, fence.MaxToken - 1, fence.MaxToken} {
			open(t, guard, "a", token)
			open(t, guard, "a", token)
			if got := do(t, server, "GET", "redlatch:{a}:guard:a"); got != strconv.FormatUint(token, 10) {
				t.Errorf("stored %s for %d", got, token)
			}
			if token > 1 {
				wantStale(t, guard.Enter(t.Context(), "a", token-1), token-1, token)
			}
		}
		if err := guard.Forget(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if keys := do(t, server, "DBSIZE"); keys != "0" {
			t.Errorf("%s keys left", keys)
		}
		open(t, guard, "a", 1) // as documented: it has forgotten
	})
}

// TestRedisKeepOfAnotherEngine pins that Keep is refused with tokens that are ahead of the clock, as those of ZooKeeper and
// etcd are: a guard that expired would let any of them in.
func TestRedisKeepOfAnotherEngine(t *testing.T) {
	eachRedis(t, func(t *testing.T, server *redistest.Server, eval fence.Eval) {
		guard, token := fence.Redis{Eval: eval, Keep: 24 * time.Hour}, uint64(time.Now().AddDate(10, 0, 0).UnixMicro())
		refused := func(err error) {
			t.Helper()
			if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "Redis.Keep") {
				t.Errorf("it is let in, or %v", err)
			}
		}
		refused(guard.Enter(t.Context(), "a", token+8))
		do(t, server, "DEL", "redlatch:{a}:guard:a") // it has expired
		refused(guard.Enter(t.Context(), "a", token))
		refused(guard.EnterShared(t.Context(), "a", token))
		guard.Keep = 0
		open(t, guard, "a", token)
	})
}

func TestRedisKeep(t *testing.T) {
	eachRedis(t, func(t *testing.T, server *redistest.Server, eval fence.Eval) {
		ctx := t.Context()
		guard := fence.Redis{Eval: eval, Keep: 24 * time.Hour}
		const guardKey = "redlatch:{a}:guard:a"
		now := uint64(time.Now().UnixMicro())
		hour := uint64(time.Hour.Microseconds())

		a := open(t, guard, "a", now)
		fresh := func() {
			t.Helper()
			if ms, err := strconv.Atoi(do(t, server, "PTTL", guardKey)); err != nil || ms < 23*3_600_000 || ms > 24*3_600_000 {
				t.Errorf("PTTL %d, %v, want a day", ms, err)
			}
		}
		fresh()
		do(t, server, "PEXPIRE", guardKey, "1000000")
		if _, _, err := a.Get(ctx); err != nil {
			t.Fatal(err)
		}
		fresh() // each access begins the day anew

		// Expired. What is older than half a day might be older than what the guard had seen.
		do(t, server, "DEL", guardKey)
		err := guard.Enter(ctx, "a", now-13*hour)
		stale, ok := errors.AsType[*fence.StaleError](err)
		if !ok || stale.Largest > now-11*hour || stale.Largest < now-13*hour {
			t.Fatalf("got %v, want a refusal with a floor of half a day ago", err)
		}
		if n := do(t, server, "EXISTS", guardKey); n != "0" {
			t.Error("a refusal made a guard")
		}
		open(t, guard, "a", now-11*hour)
		fresh()
		wantStale(t, guard.Enter(ctx, "a", now-12*hour), now-12*hour, now-11*hour)
		// With the guard there, age alone is no reason.
		do(t, server, "SET", guardKey, "33")
		open(t, guard, "a", 33)
		// And a guard that is kept for ever asks no clock.
		open(t, fence.Redis{Eval: eval}, "b", 33)
		if ttl := do(t, server, "PTTL", "redlatch:{b}:guard:b"); ttl != "-1" {
			t.Errorf("PTTL %s, want none", ttl)
		}
		// From now on for ever, by the token that it was kept for a day with.
		open(t, fence.Redis{Eval: eval}, "a", 33)
		if ttl := do(t, server, "PTTL", guardKey); ttl != "-1" {
			t.Errorf("PTTL %s after an access without Keep, want none", ttl)
		}
		// Both keys of readers are, also where a program that knows of no readers kept one of them.
		if err := guard.EnterShared(ctx, "d", now); err != nil {
			t.Fatal(err)
		}
		open(t, fence.Redis{Eval: eval}, "d", now)
		if err := (fence.Redis{Eval: eval}).EnterShared(ctx, "d", now); err != nil {
			t.Fatal(err)
		}
		if ttl := do(t, server, "PTTL", "redlatch:{d}:guard-shared:d"); ttl != "-1" {
			t.Errorf("PTTL %s of the readers' key after an access without Keep, want none", ttl)
		}
		// A user who may not do that is let in all the same, and readers are.
		if err := guard.EnterShared(ctx, "c", now); err != nil {
			t.Fatal(err)
		}
		do(t, server, "PEXPIRE", guardKey, "86400000")
		do(t, server, "ACL", "SETUSER", "default", "-persist")
		open(t, fence.Redis{Eval: eval}, "a", 33)
		if err := (fence.Redis{Eval: eval}).EnterShared(ctx, "c", now); err != nil {
			t.Error(err)
		}
	})
}

// TestRedisWithoutMemory pins that a server that is out of memory refuses what it is to store under a token that it knows:
// it refuses no command of a script that has sent one that writes.
func TestRedisWithoutMemory(t *testing.T) {
	eachRedis(t, func(t *testing.T, server *redistest.Server, eval fence.Eval) {
		a := open(t, fence.Redis{Eval: eval}, "a", 33)
		do(t, server, "CONFIG", "SET", "maxmemory", "1")
		if err := a.Set(t.Context(), "x", 0); err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("got %v, want that the server is out of memory", err)
		}
	})
}

// TestRedisServerErrors pins that a refusal by the server arrives with its text, and is no ErrStale.
func TestRedisServerErrors(t *testing.T) {
	eachRedis(t, func(t *testing.T, server *redistest.Server, eval fence.Eval) {
		ctx := t.Context()
		guard := fence.Redis{Eval: eval}
		do(t, server, "RPUSH", "list", "x")
		a := open(t, guard, "list", 33)
		_, err := a.HGetAll(ctx)
		_, _, getErr := a.Get(ctx)
		do(t, server, "RPUSH", "redlatch:{b}:guard:b", "x")
		do(t, server, "SET", "redlatch:{c}:guard:c", "1e5")
		do(t, server, "SET", "redlatch:{d}:guard:d", "99999999999999999")
		do(t, server, "SET", "redlatch:{e}:guard:e", "007")
		_, runErr := a.Run(ctx, "return redis.error_reply('MINE no')", nil, nil)
		_, syntaxErr := a.Run(ctx, "this is not Lua", nil, nil)
		for says, err := range map[string]error{
			"WRONGTYPE Get":      getErr,
			"WRONGTYPE HGetAll":  err,
			"WRONGTYPE HSet":     a.HSet(ctx, map[string]string{"f": "x"}),
			"WRONGTYPE guard":    guard.Enter(ctx, "b", 33),
			"holds no token 1e5": guard.Enter(ctx, "c", 33),
			"holds no token 17":  guard.Enter(ctx, "d", 33),
			"holds no token 007": guard.Enter(ctx, "e", 33),
			"holds no token 0":   guard.EnterShared(ctx, "e", 33),
			"holds no token 99":  guard.EnterShared(ctx, "d", 33),
			"MINE":               runErr,
			"compiling":          syntaxErr,
		} {
			part, _, _ := strings.Cut(says, " ")
			if strings.HasPrefix(says, "holds no token") {
				part = "holds no token"
			}
			if err == nil || !strings.Contains(err.Error(), part) || errors.Is(err, fence.ErrStale) {
				t.Errorf("%s: %v", says, err)
			}
		}
	})
}

func TestRedisRun(t *testing.T) {
	eachRedis(t, func(t *testing.T, server *redistest.Server, eval fence.Eval) {
		ctx := t.Context()
		a := open(t, fence.Redis{Eval: eval}, "{order}", 33)
		// Two keys in one guarded step, with names that enter.lua uses as well.
		reply, err := a.Run(ctx, "local token, keep, seen, keys, args = 1, 2, 3, 4, 5\n"+
			"redis.call('SET', KEYS[1], ARGV[1]); redis.call('RPUSH', KEYS[2], ARGV[2])\nreturn #KEYS + #ARGV -- the end",
			[]string{"{order}:total", "{order}:items"}, []string{"7", "book"})
		if err != nil || reply != int64(4) {
			t.Errorf("%v, %v", reply, err)
		}
		if got := do(t, server, "GET", "{order}:total") + do(t, server, "LINDEX", "{order}:items", "0"); got != "7book" {
			t.Errorf("got %s", got)
		}
		for script, want := range map[string]any{
			"":                          nil,
			"return nil":                nil,
			"return 'x'":                "x",
			"return 'x', 'y'":           "x",
			"return {1, 2}":             []any{int64(1), int64(2)},
			"return {ok = 'FINE'}":      "FINE",
			"if true then return 1 end": int64(1),
		} {
			if reply, err := a.Run(ctx, script, nil, nil); err != nil || fmt.Sprint(reply) != fmt.Sprint(want) {
				t.Errorf("%s: %v, %v, want %v", script, reply, err, want)
			}
		}
	})
}

// TestRedisCluster pins that guard and key lie in one slot, on a server that refuses a script which reaches for two.
func TestRedisCluster(t *testing.T) {
	for _, flavor := range redistest.Flavors() {
		t.Run(flavor, func(t *testing.T) {
			server := redistest.New(t, redistest.Options{Binary: flavor, Args: []string{"--cluster-enabled", "yes"}})
			do(t, server, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
			awaitCluster(t, server)
			cluster := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{server.Addr()}})
			defer cluster.Close()
			other, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			for client, eval := range map[string]fence.Eval{"go-redis": goredisEval(cluster), "rueidis": rueidisEval(other)} {
				guard := fence.Redis{Eval: eval}
				for _, key := range []string{"a", "account:42", "{account}:42", "a{b}c{d}", "{}x", "a}b", "{", "}", "a{b", "a}{b}", "{{x}}"} {
					a, err := guard.Open(t.Context(), key, 34)
					if err != nil {
						t.Errorf("%s, %q: %v", client, key, err)
						continue
					}
					if err := a.Set(t.Context(), key, 0); err != nil {
						t.Errorf("%s, %q: %v", client, key, err)
					}
					if got, ok, err := a.Get(t.Context()); !ok || got != key || err != nil {
						t.Errorf("%s, %q: got %q, %t, %v", client, key, got, ok, err)
					}
					wantStale(t, guard.Enter(t.Context(), key, 33), 33, 34)
				}
			}
			// That the server is one that would refuse: else the test proves nothing.
			if _, err := server.Do("EVAL", "return 1", "2", "a", "b"); err == nil || !strings.Contains(err.Error(), "CROSSSLOT") {
				t.Errorf("got %v, want CROSSSLOT", err)
			}
		})
	}
}

// awaitCluster returns when the server serves the slots it was given.
func awaitCluster(t *testing.T, server *redistest.Server) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		info := do(t, server, "CLUSTER", "INFO")
		if strings.Contains(info, "cluster_state:ok") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no cluster:\n%s", info)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
