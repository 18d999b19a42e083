package guardtest

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/fence"
	"github.com/redlatch/redlatch/internal/redistest"
)

// What the version that knew of no readers made and sent, to the letter.
const (
	earlierCreate = "CREATE TABLE IF NOT EXISTS redlatch_fence (resource TEXT NOT NULL PRIMARY KEY, " +
		"token BIGINT NOT NULL CHECK (token > 0 AND token < 9007199254740992))"
	earlierEnter = "INSERT INTO redlatch_fence AS guard (resource, token) VALUES ($1, $2) " +
		"ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE guard.token <= excluded.token"
	earlierColumn = "UPDATE account SET fencing_token = $1 WHERE id = $2 AND COALESCE(fencing_token, 0) <= $1"
)

//go:embed testdata/enter_earlier.lua
var earlierLua string

// sharedGuard is a guard of one resource: what this version does there, and what the one before did.
type sharedGuard struct {
	enter, enterShared, earlier func(ctx context.Context, token uint64) error
}

// rows makes a refusal of a statement that changed no row.
func rows(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, fence.ErrStale)
	}
	return nil
}

// sharedGuards is every guard on every database, each with what makes one of a fresh resource.
func sharedGuards(t *testing.T) map[string]func(t *testing.T, resource int) sharedGuard {
	all := make(map[string]func(t *testing.T, resource int) sharedGuard)
	for name, db := range map[string]*sql.DB{"PostgreSQL": postgresDB(t, ""), "SQLite": sqliteDB(t, "_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")} {
		// The table is one of the earlier version, which has been in use.
		exec(t, db, earlierCreate, "INSERT INTO redlatch_fence VALUES ('resource 0', 20)",
			"CREATE TABLE account (id BIGINT PRIMARY KEY, fencing_token BIGINT)", "INSERT INTO account VALUES (0, 20)")
		guard, column := guardTable(t, db), fence.Column{Table: "account"}
		for range 2 {
			if err := guard.AddShared(t.Context(), db); err != nil {
				t.Fatal(err)
			}
		}
		exec(t, db, "ALTER TABLE account ADD COLUMN fencing_writer BIGINT", "ALTER TABLE account ADD COLUMN fencing_reader BIGINT")
		store := guard.Store(db)
		all["Table on "+name] = func(_ *testing.T, resource int) sharedGuard {
			name := fmt.Sprint("resource ", resource)
			return sharedGuard{
				func(ctx context.Context, token uint64) error { return store.Enter(ctx, name, token) },
				func(ctx context.Context, token uint64) error { return store.EnterShared(ctx, name, token) },
				func(ctx context.Context, token uint64) error {
					return rows(db.ExecContext(ctx, earlierEnter, name, int64(token)))
				},
			}
		}
		nothing := func(*sql.Tx) error { return nil }
		all["Column on "+name] = func(t *testing.T, resource int) sharedGuard {
			exec(t, db, fmt.Sprintf("INSERT INTO account (id) VALUES (%d) ON CONFLICT DO NOTHING", resource))
			return sharedGuard{
				func(ctx context.Context, token uint64) error { return column.Do(ctx, db, resource, token, nothing) },
				func(ctx context.Context, token uint64) error {
					return column.DoShared(ctx, db, resource, token, nothing)
				},
				func(ctx context.Context, token uint64) error {
					return rows(db.ExecContext(ctx, earlierColumn, int64(token), resource))
				},
			}
		}
	}
	for _, flavor := range redistest.Flavors() {
		for _, keep := range []time.Duration{0, 24 * time.Hour} {
			eval := goredisEval(goredisClient(t, redistest.New(t, redistest.Options{Binary: flavor})))
			guard := fence.Redis{Eval: eval, Keep: keep}
			offset := uint64(0)
			if keep > 0 { // which takes tokens that are a time
				offset = uint64(time.Now().UnixMicro()) / 1000 * 1000
			}
			all[fmt.Sprintf("Redis on %s, keep %v", flavor, keep)] = func(t *testing.T, resource int) sharedGuard {
				key := fmt.Sprint("resource ", resource)
				earlier := func(ctx context.Context, token uint64) error {
					reply, err := eval(ctx, earlierLua+"return {'ok'}", []string{"redlatch:{" + key + "}:guard:" + key},
						[]string{strconv.FormatUint(offset+token, 10), strconv.FormatInt(keep.Milliseconds(), 10)})
					if err == nil && fmt.Sprint(reply) != "[ok]" {
						err = fence.ErrStale
					}
					return err
				}
				if resource == 0 {
					if err := earlier(t.Context(), 20); err != nil {
						t.Fatal(err)
					}
				}
				return sharedGuard{
					func(ctx context.Context, token uint64) error { return guard.Enter(ctx, key, offset+token) },
					func(ctx context.Context, token uint64) error { return guard.EnterShared(ctx, key, offset+token) },
					earlier,
				}
			}
		}
	}
	return all
}

// TestSharedHistories compares random histories on every guard with the rule: a reader is refused that is smaller than
// the largest writer, a writer that is smaller than the largest of all. Clients of the earlier version take part. With
// its readers, which enter as writers do, more readers may be refused, and nobody is let in whom the rule refuses.
func TestSharedHistories(t *testing.T) {
	seed := newSeed(t)
	for name, guard := range sharedGuards(t) {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			refused, needless := [2]int{}, 0
			for resource := range 40 {
				g := guard(t, resource)
				var writer, largest uint64
				if resource == 0 {
					writer, largest = 20, 20
				}
				earlierReaders := resource%4 == 3
				var history strings.Builder
				for range 30 {
					token, earlier := 1+max(largest, 6)-6+rng.Uint64N(12), rng.IntN(3) == 0
					reader := token%2 == 1 // so that no token is both
					enter, smallest := g.enter, largest
					switch {
					case reader && earlier && earlierReaders:
						enter = g.earlier
					case reader:
						enter, smallest, earlier = g.enterShared, writer, false
					case earlier:
						enter = g.earlier
					}
					err := enter(t.Context(), token)
					fmt.Fprintf(&history, " %d(earlier %t): %t;", token, earlier, err == nil)
					stale := errors.Is(err, fence.ErrStale)
					allowed := token >= smallest
					switch {
					case err != nil && !stale:
						t.Fatal(err)
					case !stale && !allowed, stale && allowed && (!earlierReaders || !reader || token >= largest):
						t.Fatalf("resource %d:%s after %d of all and %d of writers", resource, history.String(), largest, writer)
					case stale && allowed:
						needless++
					case stale:
						refused[token%2]++
					}
					if stale {
						continue
					}
					largest = max(largest, token)
					if !reader {
						writer = token
					}
				}
			}
			t.Logf("%d writers and %d readers refused, %d readers needlessly", refused[0], refused[1], needless)
			// Not every seed has a reader that is refused needlessly: TestSharedBesideEarlierVersion has one.
			if refused[0] == 0 || refused[1] == 0 {
				t.Error("it proves nothing: there was nobody to refuse")
			}
		})
	}
}

// TestSharedBesideEarlierVersion plays both orders: a writer of the earlier version before a reader, and after it.
func TestSharedBesideEarlierVersion(t *testing.T) {
	for name, guard := range sharedGuards(t) {
		t.Run(name, func(t *testing.T) {
			before, after, reads := guard(t, 1), guard(t, 2), guard(t, 3)
			for i, step := range []struct {
				enter func(context.Context, uint64) error
				token uint64
				stale bool
			}{
				{before.earlier, 34, false}, {before.enterShared, 33, true}, {before.enterShared, 37, false}, {before.enterShared, 35, false},

				{after.enterShared, 35, false}, {after.earlier, 34, true}, {after.earlier, 36, false}, {after.enterShared, 35, true},
				{after.enterShared, 39, false}, {after.enterShared, 37, false}, {after.earlier, 38, true}, {after.enter, 38, true},

				// Its readers enter as writers do.
				{reads.earlier, 35, false}, {reads.enterShared, 35, false}, {reads.enterShared, 33, true},
				{reads.enterShared, 37, false}, {reads.earlier, 35, true}, {reads.enterShared, 35, false}, {reads.earlier, 37, false},
			} {
				if err := step.enter(t.Context(), step.token); err != nil != step.stale || step.stale && !errors.Is(err, fence.ErrStale) {
					t.Errorf("step %d, token %d: %v", i, step.token, err)
				}
			}
		})
	}
}

// TestSharedStores pins the contract of SharedStore for each when many come at once: once a writer's token has been let
// in, every smaller one that comes later is refused, and after a reader's, every smaller writer's.
func TestSharedStores(t *testing.T) {
	for name, fresh := range stores() {
		t.Run(name, func(t *testing.T) {
			store, ok := fresh(t).(fence.SharedStore)
			if !ok {
				t.Fatalf("%T is no SharedStore", store)
			}
			raise := func(largest *atomic.Uint64, token uint64) {
				for seen := largest.Load(); seen < token && !largest.CompareAndSwap(seen, token); seen = largest.Load() {
				}
			}
			var next, all, writers atomic.Uint64
			var readers atomic.Int64
			var wg sync.WaitGroup
			one := func(token uint64) {
				enter, smallest := store.Enter, all.Load() // let in before this call starts
				if token%3 != 0 {
					enter, smallest = store.EnterShared, writers.Load()
				}
				if err := enter(t.Context(), "a", token); err != nil {
					stale, ok := errors.AsType[*fence.StaleError](err)
					if !ok || stale.Token != token || stale.Largest <= token || stale.Largest < smallest {
						t.Errorf("%d after %d: %v", token, smallest, err)
					}
					return
				}
				if token < smallest {
					t.Errorf("%d let in after %d", token, smallest)
				}
				if token < all.Load() {
					readers.Add(1)
				}
				raise(&all, token)
				if token%3 == 0 {
					raise(&writers, token)
				}
			}
			for range 6 {
				wg.Go(func() {
					for range 10 {
						writer := next.Add(3)
						one(writer - 1)
						one(writer - 2)
						one(writer)
						one(max(writer, 6) - 3) // the one before, which was held up
					}
				})
			}
			wg.Wait()
			if writers.Load() == 0 || readers.Load() == 0 {
				t.Errorf("%d of writers, %d readers behind others", writers.Load(), readers.Load())
			}
		})
	}
}

// TestSharedWaits pins that a reader waits for a writer's transaction, compares then and reads what it has committed, and
// that a writer waits for a reader's, at every isolation level.
func TestSharedWaits(t *testing.T) {
	for _, level := range levels {
		t.Run(level.String(), func(t *testing.T) {
			db := postgresDB(t, "")
			exec(t, db, "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT)", "INSERT INTO account VALUES (42, 100)")
			guard := guardTable(t, db)
			guard.TxOptions = &sql.TxOptions{Isolation: level}
			balance := func(tx *sql.Tx) (n int) {
				if err := tx.QueryRowContext(t.Context(), "SELECT balance FROM account").Scan(&n); err != nil {
					t.Error(err)
				}
				return n
			}
			writer := begin(t, db, level)
			if err := guard.Enter(t.Context(), writer, "a", 34); err != nil {
				t.Fatal(err)
			}
			if _, err := writer.ExecContext(t.Context(), "UPDATE account SET balance = 200"); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			read := 0
			for _, c := range []struct {
				token uint64
				stale bool
			}{{35, false}, {33, true}} {
				go func() {
					done <- guard.DoShared(t.Context(), db, "a", c.token, func(tx *sql.Tx) error { read = balance(tx); return nil })
				}()
				if !c.stale {
					awaitBlocked(t, db)
					commit(t, writer)
				}
				if err := <-done; c.stale {
					wantStale(t, err, 33, 34)
				} else if err != nil || read != 200 {
					t.Errorf("read %d, %v", read, err)
				}
			}

			reader := begin(t, db, level)
			if err := guard.EnterShared(t.Context(), reader, "a", 35); err != nil {
				t.Fatal(err)
			}
			go func() {
				done <- guard.Do(t.Context(), db, "a", 36, func(tx *sql.Tx) error {
					_, err := tx.ExecContext(t.Context(), "UPDATE account SET balance = 300")
					return err
				})
			}()
			awaitBlocked(t, db)
			if n := balance(reader); n != 200 {
				t.Errorf("the reader finds %d", n)
			}
			commit(t, reader)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			wantStale(t, guard.Store(db).EnterShared(t.Context(), "a", 35), 35, 36)
		})
	}
}

// TestSharedColumnsMissing pins what a reader is told where the columns are not there, and that writers go on.
func TestSharedColumnsMissing(t *testing.T) {
	db := postgresDB(t, "")
	exec(t, db, earlierCreate, "CREATE TABLE account (id BIGINT PRIMARY KEY, fencing_token BIGINT)", "INSERT INTO account VALUES (42, 33)")
	guard, column := guardTable(t, db), fence.Column{Table: "account"}
	for remedy, err := range map[string]error{
		"Table.AddShared": guard.Store(db).EnterShared(t.Context(), "a", 35),
		"Column.Reader":   column.DoShared(t.Context(), db, 42, 35, func(*sql.Tx) error { t.Error("fn ran"); return nil }),
	} {
		if err == nil || !strings.Contains(err.Error(), remedy) || errors.Is(err, fence.ErrStale) {
			t.Errorf("%v, want %s", err, remedy)
		}
	}
	if err := guard.Store(db).Enter(t.Context(), "a", 36); err != nil {
		t.Error(err)
	}
	var wg sync.WaitGroup
	for range 8 { // as processes that start at once
		wg.Go(func() {
			if err := guard.AddShared(t.Context(), db); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	wantStale(t, guard.Store(db).EnterShared(t.Context(), "a", 35), 35, 36)
	// Where they are there, nothing is changed, for which PostgreSQL would wait for all who use the table.
	if err := guard.Enter(t.Context(), begin(t, db, sql.LevelDefault), "a", 37); err != nil {
		t.Fatal(err)
	}
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := guard.AddShared(within, db); err != nil {
		t.Errorf("while a transaction uses the table: %v", err)
	}
	if err := (fence.Table{Name: "nowhere"}).AddShared(t.Context(), db); err == nil {
		t.Error("no error without a table")
	}
}

// TestRedisShared pins that a reader's Access compares each time, reads, and does not write.
func TestRedisShared(t *testing.T) {
	eachRedis(t, func(t *testing.T, server *redistest.Server, eval fence.Eval) {
		ctx, guard := t.Context(), fence.Redis{Eval: eval}
		if err := open(t, guard, "s", 34).Set(ctx, "x", 0); err != nil {
			t.Fatal(err)
		}
		readers := make([]*fence.Access, 2)
		for i, token := range []uint64{37, 35} {
			a, err := guard.OpenShared(ctx, "s", token)
			if err != nil {
				t.Fatal(err)
			}
			readers[i] = a
		}
		wantStale(t, guard.Enter(ctx, "s", 36), 36, 37)
		for _, a := range readers {
			if value, ok, err := a.Get(ctx); value != "x" || !ok || err != nil {
				t.Errorf("%q, %t, %v", value, ok, err)
			}
			if reply, err := a.Run(ctx, "return redis.call('STRLEN', KEYS[1])", []string{"s"}, nil); reply != int64(1) || err != nil {
				t.Errorf("%v, %v", reply, err)
			}
			for _, err := range []error{a.Set(ctx, "y", 0), a.Del(ctx), a.HSet(ctx, map[string]string{"f": "v"})} {
				if !errors.Is(err, fence.ErrInvalid) {
					t.Errorf("a reader writes: %v", err)
				}
			}
		}
		open(t, guard, "s", 38)
		for i, a := range readers {
			_, _, err := a.Get(ctx)
			wantStale(t, err, []uint64{37, 35}[i], 38)
		}
		do(t, server, "SET", "redlatch:{s}:guard:s", "no token")
		if err := guard.EnterShared(ctx, "s", 39); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("a guard without a token: %v", err)
		}
		if err := guard.Forget(ctx, "s"); err != nil {
			t.Fatal(err)
		}
		if keys := do(t, server, "KEYS", "redlatch:*"); keys != "[]" {
			t.Errorf("%s left", keys)
		}
	})
}

// TestRedisSharedKeep pins that a guard that expired, and that a reader has made anew, refuses the readers that it refused
// without a guard: the writer that it has forgotten may be a later one.
func TestRedisSharedKeep(t *testing.T) {
	eachRedis(t, func(t *testing.T, server *redistest.Server, eval fence.Eval) {
		ctx, guard := t.Context(), fence.Redis{Eval: eval, Keep: 24 * time.Hour}
		now, hour := uint64(time.Now().UnixMicro()), uint64(time.Hour.Microseconds())
		reader := now - 14*hour
		do(t, server, "SET", "redlatch:{a}:guard:a", fmt.Sprint(now-13*hour)) // as a writer left it
		wantStale(t, guard.EnterShared(ctx, "a", reader), reader, now-13*hour)
		do(t, server, "DEL", "redlatch:{a}:guard:a") // it has expired
		if err := guard.EnterShared(ctx, "a", reader); !errors.Is(err, fence.ErrStale) || do(t, server, "EXISTS", "redlatch:{a}:guard:a") != "0" {
			t.Errorf("%v: a reader that came before the forgotten writer is let in, or has made a guard", err)
		}
		for _, token := range []uint64{now - 2*hour, now - 3*hour} {
			if err := guard.EnterShared(ctx, "a", token); err != nil {
				t.Fatal(err)
			}
			if err := guard.EnterShared(ctx, "a", reader); !errors.Is(err, fence.ErrStale) {
				t.Errorf("%v: a reader that came before the forgotten writer is let in", err)
			}
		}
		for _, key := range []string{"redlatch:{a}:guard:a", "redlatch:{a}:guard-shared:a"} {
			if ms, err := strconv.Atoi(do(t, server, "PTTL", key)); err != nil || ms < 23*3_600_000 || ms > 24*3_600_000 {
				t.Errorf("%s has the PTTL %d, %v, want a day", key, ms, err)
			}
		}
		// From now on for ever, by a token that it was kept for a day with.
		if err := (fence.Redis{Eval: eval}).EnterShared(ctx, "a", now-3*hour); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"redlatch:{a}:guard:a", "redlatch:{a}:guard-shared:a"} {
			if ttl := do(t, server, "PTTL", key); ttl != "-1" {
				t.Errorf("%s has the PTTL %s after an access without Keep, want none", key, ttl)
			}
		}
		// Without that, readers do not refuse each other, and writers go on.
		if err := guard.EnterShared(ctx, "a", now-11*hour); err != nil {
			t.Error(err)
		}
		if err := guard.Enter(ctx, "a", now-hour); err != nil {
			t.Error(err)
		}
	})
}
