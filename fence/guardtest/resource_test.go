package guardtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/fence"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A resource is a counter in some database, behind one of the guards. With guarded false the same access goes around
// the guard. Nothing but the guard keeps the accesses of two holders apart.
type resource interface {
	read(ctx context.Context, token uint64, guarded bool) (int, error)
	write(ctx context.Context, token uint64, guarded bool, value int) error
}

// adder is a resource that can read and write in one access, always guarded.
type adder interface {
	add(ctx context.Context, token uint64) error
}

// sqlResource is the row 42 of the table account.
type sqlResource struct {
	db *sql.DB
	do func(ctx context.Context, token uint64, fn func(*sql.Tx) error) error
}

const (
	selectBalance = "SELECT balance FROM account WHERE id = 42"
	updateBalance = "UPDATE account SET balance = $1 WHERE id = 42"
)

func (r sqlResource) read(ctx context.Context, token uint64, guarded bool) (value int, err error) {
	if !guarded {
		return value, r.db.QueryRowContext(ctx, selectBalance).Scan(&value)
	}
	err = r.do(ctx, token, func(tx *sql.Tx) error { return tx.QueryRowContext(ctx, selectBalance).Scan(&value) })
	return value, err
}

func (r sqlResource) write(ctx context.Context, token uint64, guarded bool, value int) error {
	if !guarded {
		_, err := r.db.ExecContext(ctx, updateBalance, value)
		return err
	}
	return r.do(ctx, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, updateBalance, value)
		return err
	})
}

func (r sqlResource) add(ctx context.Context, token uint64) error {
	return r.do(ctx, token, func(tx *sql.Tx) error {
		var value int
		if err := tx.QueryRowContext(ctx, selectBalance).Scan(&value); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, updateBalance, value+1)
		return err
	})
}

// ownStatements is the same row, with the comparison in the caller's statements as Column's documentation has them.
type ownStatements struct {
	sqlResource
	column fence.Column
}

const (
	enterAndRead = "UPDATE account SET fencing_token = $1 WHERE id = $2 AND COALESCE(fencing_token, 0) <= $1 RETURNING balance"
	enterAndSet  = "UPDATE account SET balance = $1, fencing_token = $2 WHERE id = $3 AND COALESCE(fencing_token, 0) <= $2"
)

func (r ownStatements) read(ctx context.Context, token uint64, guarded bool) (value int, err error) {
	if !guarded {
		return r.sqlResource.read(ctx, token, false)
	}
	err = r.db.QueryRowContext(ctx, enterAndRead, int64(token), 42).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, r.why(ctx, token)
	}
	return value, err
}

func (r ownStatements) write(ctx context.Context, token uint64, guarded bool, value int) error {
	if !guarded {
		return r.sqlResource.write(ctx, token, false, value)
	}
	result, err := r.db.ExecContext(ctx, enterAndSet, value, int64(token), 42)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return r.why(ctx, token)
}

// why asks Enter for the reason, as documented.
func (r ownStatements) why(ctx context.Context, token uint64) error {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := r.column.Enter(ctx, tx, 42, token); err != nil {
		return err
	}
	return fmt.Errorf("the statement refused %d and Enter takes it", token)
}

// redisString and redisHash are the key account:42. plain is the way around the guard.
type redisString struct {
	guard fence.Redis
	plain func(ctx context.Context, args ...any) (any, error)
}

func (r redisString) read(ctx context.Context, token uint64, guarded bool) (int, error) {
	if !guarded {
		reply, err := r.plain(ctx, "GET", "account:42")
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(reply.(string))
	}
	a, err := r.guard.Open(ctx, "account:42", token)
	if err != nil {
		return 0, err
	}
	value, ok, err := a.Get(ctx)
	if err == nil && !ok {
		err = errors.New("the value is gone")
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(value)
}

func (r redisString) write(ctx context.Context, token uint64, guarded bool, value int) error {
	if !guarded {
		_, err := r.plain(ctx, "SET", "account:42", strconv.Itoa(value))
		return err
	}
	a, err := r.guard.Open(ctx, "account:42", token)
	if err != nil {
		return err
	}
	return a.Set(ctx, strconv.Itoa(value), 0)
}

// add is a script of the caller's own.
func (r redisString) add(ctx context.Context, token uint64) error {
	a, err := r.guard.Open(ctx, "account:42", token)
	if err != nil {
		return err
	}
	_, err = a.Run(ctx, "return redis.call('INCR', KEYS[1])", []string{"account:42"}, nil)
	return err
}

type redisHash struct{ redisString }

func (r redisHash) read(ctx context.Context, token uint64, guarded bool) (int, error) {
	if !guarded {
		reply, err := r.plain(ctx, "HGET", "account:42", "balance")
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(reply.(string))
	}
	a, err := r.guard.Open(ctx, "account:42", token)
	if err != nil {
		return 0, err
	}
	fields, err := a.HGetAll(ctx)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(fields["balance"])
}

func (r redisHash) write(ctx context.Context, token uint64, guarded bool, value int) error {
	if !guarded {
		_, err := r.plain(ctx, "HSET", "account:42", "balance", strconv.Itoa(value))
		return err
	}
	a, err := r.guard.Open(ctx, "account:42", token)
	if err != nil {
		return err
	}
	return a.HSet(ctx, map[string]string{"balance": strconv.Itoa(value)})
}

func (r redisHash) add(ctx context.Context, token uint64) error {
	a, err := r.guard.Open(ctx, "account:42", token)
	if err != nil {
		return err
	}
	_, err = a.Run(ctx, "return redis.call('HINCRBY', KEYS[1], 'balance', 1)", []string{"account:42"}, nil)
	return err
}

// goredisClient and rueidisClient connect to a server for one test.
func goredisClient(t *testing.T, server *redistest.Server) *goredis.Client {
	t.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	return client
}

func rueidisClient(t *testing.T, server *redistest.Server) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// The two ways to Eval, as its documentation has them.
func goredisEval(client goredis.UniversalClient) fence.Eval {
	return func(ctx context.Context, script string, keys, args []string) (any, error) {
		return goredis.NewScript(script).Run(ctx, client, keys, args).Result()
	}
}

func rueidisEval(client rueidis.Client) fence.Eval {
	return func(ctx context.Context, script string, keys, args []string) (any, error) {
		return rueidis.NewLuaScript(script).Exec(ctx, client, keys, args).ToAny()
	}
}

// resources is every guard on every database, each with a constructor of a fresh counter that is 0.
func resources() map[string]func(t *testing.T) resource {
	all := make(map[string]func(t *testing.T) resource)

	databases := map[string]func(t *testing.T) *sql.DB{
		"PostgreSQL":               func(t *testing.T) *sql.DB { return postgresDB(t, "") },
		"SQLite WAL":               func(t *testing.T) *sql.DB { return sqliteDB(t, "_pragma=journal_mode(WAL)") },
		"SQLite WAL immediate":     func(t *testing.T) *sql.DB { return sqliteDB(t, "_pragma=journal_mode(WAL)&_txlock=immediate") },
		"SQLite rollback journal":  func(t *testing.T) *sql.DB { return sqliteDB(t, "_pragma=journal_mode(DELETE)&_txlock=immediate") },
		"SQLite rollback deferred": func(t *testing.T) *sql.DB { return sqliteDB(t, "_pragma=journal_mode(DELETE)") },
	}
	for name, open := range databases {
		levels := []sql.IsolationLevel{sql.LevelDefault}
		if name == "PostgreSQL" {
			levels = append(levels, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable)
		}
		for _, level := range levels {
			opts := &sql.TxOptions{Isolation: level}
			account := func(t *testing.T) *sql.DB {
				db := open(t)
				exec(t, db, "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, fencing_token BIGINT)",
					"INSERT INTO account (id, balance) VALUES (42, 0)")
				return db
			}
			all[fmt.Sprintf("Table/%s/%s", name, level)] = func(t *testing.T) resource {
				db, guard := account(t), fence.Table{TxOptions: opts}
				if err := guard.Create(t.Context(), db); err != nil {
					t.Fatal(err)
				}
				return sqlResource{db, func(ctx context.Context, token uint64, fn func(*sql.Tx) error) error {
					return guard.Do(ctx, db, "account:42", token, fn)
				}}
			}
			column := func(t *testing.T) (sqlResource, fence.Column) {
				db, guard := account(t), fence.Column{Table: "account", TxOptions: opts}
				return sqlResource{db, func(ctx context.Context, token uint64, fn func(*sql.Tx) error) error {
					return guard.Do(ctx, db, 42, token, fn)
				}}, guard
			}
			all[fmt.Sprintf("Column/%s/%s", name, level)] = func(t *testing.T) resource {
				r, _ := column(t)
				return r
			}
			if level == sql.LevelDefault {
				all["own statements/"+name] = func(t *testing.T) resource {
					r, guard := column(t)
					return ownStatements{r, guard}
				}
			}
		}
	}

	for _, flavor := range redistest.Flavors() {
		all["Redis/string/"+flavor+"/go-redis"] = func(t *testing.T) resource {
			client := goredisClient(t, redistest.New(t, redistest.Options{Binary: flavor}))
			r := redisString{fence.Redis{Eval: goredisEval(client)}, func(ctx context.Context, args ...any) (any, error) {
				return client.Do(ctx, args...).Result()
			}}
			if err := r.write(t.Context(), 0, false, 0); err != nil {
				t.Fatal(err)
			}
			return r
		}
		all["Redis/hash/"+flavor+"/rueidis"] = func(t *testing.T) resource {
			client := rueidisClient(t, redistest.New(t, redistest.Options{Binary: flavor}))
			r := redisHash{redisString{fence.Redis{Eval: rueidisEval(client)}, func(ctx context.Context, args ...any) (any, error) {
				words := make([]string, len(args))
				for i, arg := range args {
					words[i] = fmt.Sprint(arg)
				}
				return client.Do(ctx, client.B().Arbitrary(words...).Build()).ToAny()
			}}}
			if err := r.write(t.Context(), 0, false, 0); err != nil {
				t.Fatal(err)
			}
			return r
		}
	}
	return all
}
