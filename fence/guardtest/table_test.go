package guardtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/redlatch/redlatch/fence"
)

// guardTable makes the guard table in db.
func guardTable(t *testing.T, db *sql.DB) fence.Table {
	t.Helper()
	var guard fence.Table
	if err := guard.Create(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return guard
}

func TestTableRollbackAnnouncesNothing(t *testing.T) {
	for name, db := range map[string]*sql.DB{"PostgreSQL": postgresDB(t, ""), "SQLite": sqliteDB(t, "")} {
		t.Run(name, func(t *testing.T) {
			exec(t, db, "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT)", "INSERT INTO account VALUES (42, 100)")
			guard := guardTable(t, db)
			failed := errors.New("failed")
			spend := func(tx *sql.Tx) {
				if _, err := tx.ExecContext(t.Context(), "UPDATE account SET balance = 0"); err != nil {
					t.Error(err)
				}
			}
			if err := guard.Do(t.Context(), db, "account:42", 34, func(tx *sql.Tx) error { spend(tx); return failed }); err != failed {
				t.Errorf("got %v, want fn's error as it is", err)
			}
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic was swallowed")
					}
				}()
				guard.Do(t.Context(), db, "account:42", 34, func(tx *sql.Tx) error { spend(tx); panic("boom") })
			}()
			lost := errors.New("lock lost")
			for _, rest := range []time.Duration{0, 10 * time.Millisecond} { // the commit comes before or after the rollback
				ctx, cancel := context.WithCancelCause(t.Context())
				err := guard.Do(ctx, db, "account:42", 34, func(tx *sql.Tx) error { spend(tx); cancel(lost); time.Sleep(rest); return nil })
				if !errors.Is(err, lost) {
					t.Errorf("got %v for a commit after the context was done", err)
				}
			}
			var balance int
			err := guard.Do(t.Context(), db, "account:42", 33, func(tx *sql.Tx) error {
				return tx.QueryRowContext(t.Context(), "SELECT balance FROM account").Scan(&balance)
			})
			if err != nil || balance != 100 {
				t.Errorf("balance %d, %v: something of a rolled back access is left", balance, err)
			}
			// The rollback that the context's end sets off runs beside us.
			for deadline := time.Now().Add(30 * time.Second); db.Stats().InUse != 0; runtime.Gosched() {
				if time.Now().After(deadline) {
					t.Fatalf("%d connections not given back", db.Stats().InUse)
				}
			}
		})
	}
}

func TestTableTokensAreExact(t *testing.T) {
	for name, db := range map[string]*sql.DB{"PostgreSQL": postgresDB(t, ""), "SQLite": sqliteDB(t, "")} {
		t.Run(name, func(t *testing.T) {
			guard := guardTable(t, db)
			store := guard.Store(db)
			for _, token := range []uint64{1, 2, 1760000000000000, 1760000000000001, fence.MaxToken - 1, fence.MaxToken} {
				if err := store.Enter(t.Context(), "a", token); err != nil {
					t.Fatal(err)
				}
				if got, err := guard.Largest(t.Context(), db, "a"); err != nil || got != token {
					t.Errorf("Largest = %d, %v, want %d", got, err, token)
				}
				if token > 1 {
					wantStale(t, store.Enter(t.Context(), "a", token-1), token-1, token)
				}
			}
			if got, err := guard.Largest(t.Context(), db, "never seen"); err != nil || got != 0 {
				t.Errorf("Largest of an unknown resource = %d, %v", got, err)
			}
			if err := store.Enter(t.Context(), "b", 34); err != nil {
				t.Fatal(err)
			}
			if err := guard.Forget(t.Context(), db, "a"); err != nil {
				t.Fatal(err)
			}
			if err := store.Enter(t.Context(), "a", 1); err != nil { // as documented: it has forgotten
				t.Error(err)
			}
			wantStale(t, store.Enter(t.Context(), "b", 33), 33, 34) // and no other
			stmts, err := guard.Statements()
			if err != nil {
				t.Fatal(err)
			}
			for _, token := range []int64{-1, 0, int64(fence.MaxToken) + 1} { // of a program that sends the statements itself
				if _, err := db.ExecContext(t.Context(), stmts.Enter, "c", token); err == nil {
					t.Errorf("the table took %d", token)
				}
			}
		})
	}
}

// TestTableCreate pins that all of many processes that start at once find the table, and that Create is content with a
// table that its user may use and could not make.
func TestTableCreate(t *testing.T) {
	for name, db := range map[string]*sql.DB{"PostgreSQL": postgresDB(t, ""), "SQLite": sqliteDB(t, "_pragma=journal_mode(WAL)")} {
		t.Run(name, func(t *testing.T) {
			for round := range 10 {
				guard := fence.Table{Name: fmt.Sprint("guard", round)}
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						if err := guard.Create(t.Context(), db); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
			}
			if err := (fence.Table{Name: "no_such_schema.guard"}).Create(t.Context(), db); err == nil {
				t.Error("no error without a table")
			}
		})
	}
	t.Run("without the right to create", func(t *testing.T) {
		db := postgresDB(t, "")
		guard := guardTable(t, db)
		var schema string
		if err := db.QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&schema); err != nil {
			t.Fatal(err)
		}
		exec(t, db, "CREATE ROLE worker_"+schema+" LOGIN", "GRANT USAGE ON SCHEMA "+schema+" TO worker_"+schema,
			"GRANT SELECT, INSERT, UPDATE, DELETE ON redlatch_fence TO worker_"+schema)
		server, err := postgres()
		if err != nil {
			t.Fatal(err)
		}
		worker, err := sql.Open("pgx", fmt.Sprintf("host=%s dbname=postgres user=worker_%s search_path=%s", server.dir, schema, schema))
		adopt(t, worker, err)
		if err := guard.Create(t.Context(), worker); err != nil {
			t.Error(err)
		}
		if err := guard.Store(worker).Enter(t.Context(), "a", 1); err != nil {
			t.Error(err)
		}
		if err := (fence.Table{Name: "other"}).Create(t.Context(), worker); sqlState(err) != "42501" {
			t.Errorf("got %v, want the server's refusal", err)
		}
	})
}

// Where PostgreSQL has no guard table, the error says how to make it.
func TestTableMissing(t *testing.T) {
	db, table := postgresDB(t, ""), fence.Table{Name: "nowhere"}
	for what, err := range map[string]error{
		"Do":       table.Do(t.Context(), db, "a", 1, func(*sql.Tx) error { t.Error("fn ran"); return nil }),
		"DoShared": table.DoShared(t.Context(), db, "a", 1, func(*sql.Tx) error { t.Error("fn ran"); return nil }),
	} {
		if sqlState(err) != "42P01" || !strings.Contains(err.Error(), "Table.Create") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestTableNames(t *testing.T) {
	db := postgresDB(t, "")
	for _, name := range []string{`"Order"`, `"two words"`, "pg_temp.guard"} {
		guard := fence.Table{Name: name}
		tx := begin(t, db, sql.LevelDefault)
		stmts, err := guard.Statements()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), stmts.Create); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := guard.Enter(t.Context(), tx, "a", 34); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wantStale(t, guard.Enter(t.Context(), tx, "a", 33), 33, 34)
	}
}

// TestTableOnConn pins that a *sql.Conn serves both ways: Do on it, and Enter after a BEGIN by hand.
func TestTableOnConn(t *testing.T) {
	db := sqliteDB(t, "_pragma=journal_mode(WAL)")
	guard := guardTable(t, db)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := guard.Do(t.Context(), conn, "a", 33, func(*sql.Tx) error { return nil }); err != nil {
		t.Error(err)
	}
	for _, step := range []func() error{
		func() error { _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); return err },
		func() error { return guard.Enter(t.Context(), conn, "a", 34) },
		func() error { _, err := conn.ExecContext(t.Context(), "COMMIT"); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	wantStale(t, guard.Store(db).Enter(t.Context(), "a", 33), 33, 34)
}

// TestTableStoreAboveReadCommitted pins that a Store waits also where the database's default would let it fail.
func TestTableStoreAboveReadCommitted(t *testing.T) {
	db := postgresDB(t, "default_transaction_isolation='repeatable read'")
	guard := guardTable(t, db)
	store := guard.Store(db)
	if err := store.Enter(t.Context(), "a", 1); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, db, sql.LevelDefault)
	if err := guard.Enter(t.Context(), tx, "a", 33); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- store.Enter(t.Context(), "a", 34) }()
	awaitBlocked(t, db)
	commit(t, tx)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantStale(t, store.Enter(t.Context(), "a", 33), 33, 34)

	// And that ctx ends the wait.
	tx = begin(t, db, sql.LevelDefault)
	if err := guard.Enter(t.Context(), tx, "a", 34); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- store.Enter(ctx, "a", 35) }()
	awaitBlocked(t, db)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's end", err)
	}
}

// TestTableTrigger pins that a database which takes no token, and has no larger one either, is not taken for a success.
func TestTableTrigger(t *testing.T) {
	db := postgresDB(t, "")
	guard := guardTable(t, db)
	if err := guard.Store(db).Enter(t.Context(), "a", 33); err != nil {
		t.Fatal(err)
	}
	exec(t, db, "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
		"CREATE TRIGGER skip BEFORE INSERT OR UPDATE ON redlatch_fence FOR EACH ROW EXECUTE FUNCTION skip()")
	for _, token := range []uint64{33, 34} {
		for _, resource := range []string{"a", "new"} {
			if err := guard.Store(db).Enter(t.Context(), resource, token); err == nil || errors.Is(err, fence.ErrStale) {
				t.Errorf("%s: %d: %v", resource, token, err)
			}
		}
	}
}

// TestTableSQLiteBusy pins what the documentation says of SQLITE_BUSY: entered first, a deferred transaction waits for the
// other writer; after a SELECT it fails at once, and is never let through.
func TestTableSQLiteBusy(t *testing.T) {
	const busySnapshot = 517
	db := sqliteDB(t, "_pragma=journal_mode(WAL)")
	guard := guardTable(t, db)
	if err := guard.Store(db).Enter(t.Context(), "a", 1); err != nil {
		t.Fatal(err)
	}

	reader := begin(t, db, sql.LevelDefault)
	if _, err := guard.Largest(t.Context(), reader, "a"); err != nil {
		t.Fatal(err)
	}
	if err := guard.Store(db).Enter(t.Context(), "a", 34); err != nil {
		t.Fatal(err)
	}
	err := guard.Enter(t.Context(), reader, "a", 35)
	if e, ok := errors.AsType[interface {
		error
		Code() int
	}](err); !ok || e.Code() != busySnapshot {
		t.Errorf("got %v, want SQLITE_BUSY_SNAPSHOT", err)
	}
	reader.Rollback()

	writer := begin(t, db, sql.LevelDefault)
	if err := guard.Enter(t.Context(), writer, "a", 35); err != nil {
		t.Fatal(err)
	}
	inFn := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- guard.Do(t.Context(), db, "a", 36, func(*sql.Tx) error { close(inFn); return nil })
	}()
	for deadline := time.Now().Add(30 * time.Second); db.Stats().InUse < 2; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("nobody came")
		}
	}
	// The other has its connection by now, and waits or is about to.
	select {
	case <-inFn:
		t.Error("two writers at once")
	default:
	}
	commit(t, writer)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantStale(t, guard.Store(db).Enter(t.Context(), "a", 35), 35, 36)
}

// TestStatementsWithPgx pins that the statements serve a driver that does not speak database/sql.
func TestStatementsWithPgx(t *testing.T) {
	server, err := postgres()
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, server.dsn())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	stmts, err := fence.Table{Name: "pg_temp.guard"}.Statements()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, stmts.Create); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		token uint64
		rows  int64
	}{{33, 1}, {34, 1}, {34, 1}, {33, 0}} {
		tag, err := conn.Exec(ctx, stmts.Enter, "a", int64(c.token))
		if err != nil || tag.RowsAffected() != c.rows {
			t.Errorf("%d: %v, %v, want %d rows", c.token, tag, err, c.rows)
		}
	}
	var largest int64
	if err := conn.QueryRow(ctx, stmts.Largest, "a").Scan(&largest); err != nil || largest != 34 {
		t.Errorf("largest %d, %v", largest, err)
	}
	if tag, err := conn.Exec(ctx, stmts.Forget, "a"); err != nil || tag.RowsAffected() != 1 {
		t.Errorf("%v, %v", tag, err)
	}
}
