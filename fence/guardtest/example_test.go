package guardtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/fence"
)

// A guard table in PostgreSQL. Client 1, with token 33, is paused between its read and its write; client 2 has 34.
func Example_tableOnPostgreSQL() {
	ctx := context.Background()
	db, err := openPostgres("")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT); INSERT INTO account VALUES (42, 100)"); err != nil {
		log.Fatal(err)
	}

	var guard fence.Table
	if err := guard.Create(ctx, db); err != nil {
		log.Fatal(err)
	}
	read := func(token uint64) (balance int, err error) {
		err = guard.Do(ctx, db, "account:42", token, func(tx *sql.Tx) error {
			return tx.QueryRow("SELECT balance FROM account WHERE id = 42").Scan(&balance)
		})
		return balance, err
	}
	write := func(token uint64, balance int) error {
		return guard.Do(ctx, db, "account:42", token, func(tx *sql.Tx) error {
			_, err := tx.Exec("UPDATE account SET balance = $1 WHERE id = 42", balance)
			return err
		})
	}

	balance1, err := read(33)
	fmt.Println(balance1, err)
	balance2, err := read(34)
	fmt.Println(balance2, err)
	fmt.Println(write(33, balance1+10)) // client 1 wakes up, too late
	fmt.Println(write(34, balance2+20))
	fmt.Println(read(34))
	// Output:
	// 100 <nil>
	// 100 <nil>
	// fence: stale token: 33 for "account:42", which has seen 34: a later holder has the lock
	// <nil>
	// 120 <nil>
}

// The comparison in the row itself, in SQLite.
func Example_columnOnSQLite() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "guardtest-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+dir+"/accounts.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, fencing_token BIGINT); INSERT INTO account VALUES (42, 100, NULL)"); err != nil {
		log.Fatal(err)
	}

	guard := fence.Column{Table: "account"}
	add := func(token uint64, amount int) error {
		return guard.Do(ctx, db, 42, token, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + $1 WHERE id = 42", amount)
			return err
		})
	}
	fmt.Println(add(34, 20))
	fmt.Println(add(33, 10))
	// Output:
	// <nil>
	// fence: stale token: 33 for "account[42]", which has seen 34: a later holder has the lock
}

// The comparison in the caller's own statement, without a transaction around it.
func Example_ownStatement() {
	ctx := context.Background()
	db, err := openPostgres("")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT, fencing_token BIGINT); INSERT INTO account VALUES (42, 100, NULL)"); err != nil {
		log.Fatal(err)
	}
	read := func(token int64) (balance int, err error) {
		err = db.QueryRowContext(ctx, `UPDATE account SET fencing_token = $1
			WHERE id = $2 AND COALESCE(fencing_token, 0) <= $1 RETURNING balance`, token, 42).Scan(&balance)
		return balance, err
	}
	fmt.Println(read(34))
	fmt.Println(read(33))
	// Output:
	// 100 <nil>
	// 0 sql: no rows in result set
}

// A guard for one's own driver: pgx without database/sql, say.
func Example_statements() {
	stmts, err := fence.Table{Name: "app.guard"}.Statements()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stmts.Enter)
	fmt.Println(stmts.Largest)
	// Output:
	// INSERT INTO app.guard AS guard (resource, token) VALUES ($1, $2) ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE guard.token <= excluded.token
	// SELECT token FROM app.guard WHERE resource = $1
}

func Example_goRedis() {
	ctx := context.Background()
	server, err := redisSrv()
	if err != nil {
		log.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	guard := fence.Redis{Eval: func(ctx context.Context, script string, keys, args []string) (any, error) {
		return redis.NewScript(script).Run(ctx, client, keys, args).Result()
	}}
	first, err := guard.Open(ctx, "stock:7", 33)
	if err != nil {
		log.Fatal(err)
	}
	second, err := guard.Open(ctx, "stock:7", 34)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(first.Set(ctx, "late", 0))
	fmt.Println(second.Set(ctx, "5", 0))
	fmt.Println(second.Get(ctx))
	// Output:
	// fence: stale token: 33 for "stock:7", which has seen 34: a later holder has the lock
	// <nil>
	// 5 true <nil>
}

func Example_rueidis() {
	ctx := context.Background()
	server, err := redisSrv()
	if err != nil {
		log.Fatal(err)
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	guard := fence.Redis{Eval: func(ctx context.Context, script string, keys, args []string) (any, error) {
		return rueidis.NewLuaScript(script).Exec(ctx, client, keys, args).ToAny()
	}}
	account, err := guard.Open(ctx, "account:42", 34)
	if err != nil {
		log.Fatal(err)
	}
	if err := account.HSet(ctx, map[string]string{"balance": "100"}); err != nil {
		log.Fatal(err)
	}
	fields, err := account.HGetAll(ctx)
	if err != nil {
		log.Fatal(err)
	}
	balance, err := strconv.Atoi(fields["balance"])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(account.HSet(ctx, map[string]string{"balance": strconv.Itoa(balance + 10)}))
	fmt.Println(errors.Is(guard.Enter(ctx, "account:42", 33), fence.ErrStale))
	// Output:
	// <nil>
	// true
}

// A script of one's own as the guarded step: several keys, or types that Access has no method for.
func Example_run() {
	ctx := context.Background()
	server, err := redisSrv()
	if err != nil {
		log.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	order, err := fence.Redis{Eval: goredisEval(client)}.Open(ctx, "{order:1}", 34)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(order.Run(ctx, `
		redis.call('RPUSH', KEYS[1], ARGV[1])
		return redis.call('INCRBY', KEYS[2], ARGV[2])`,
		[]string{"{order:1}:items", "{order:1}:total"}, []string{"book", "30"}))
	// Output: 30 <nil>
}
