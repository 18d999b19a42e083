package guardtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch/fence"
)

// begin begins a transaction that is rolled back at the end of the test at the latest.
func begin(t *testing.T, db *sql.DB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

func commit(t *testing.T, tx *sql.Tx) {
	t.Helper()
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// awaitBlocked returns when a session of db's schema waits for a lock.
func awaitBlocked(t *testing.T, db *sql.DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var schema string
	if err := db.QueryRowContext(ctx, "SELECT current_schema()").Scan(&schema); err != nil {
		t.Fatal(err)
	}
	for {
		// The statement names the table with its schema, which is what tells this test's sessions from others.
		var n int
		err := db.QueryRowContext(ctx, "SELECT count(*) FROM pg_locks w JOIN pg_locks r USING (pid) JOIN pg_class c ON c.oid = r.relation "+
			"JOIN pg_namespace s ON s.oid = c.relnamespace WHERE NOT w.granted AND s.nspname = $1", schema).Scan(&n)
		if err != nil {
			t.Fatal("nobody came to wait for a lock: ", err)
		}
		if n > 0 {
			return
		}
	}
}

var levels = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// TestTableWaits pins what happens to an Enter that meets an open transaction of another holder, on a row that was
// there before and on one that was not, at every isolation level.
func TestTableWaits(t *testing.T) {
	for _, level := range levels {
		for _, rowThere := range []bool{true, false} {
			for _, c := range []struct {
				name          string
				first, second uint64
				commit        bool
				stale         bool
			}{
				{"old holder commits", 33, 34, true, false},
				{"old holder rolls back", 33, 34, false, false},
				{"new holder commits", 34, 33, true, true},
				{"new holder rolls back", 34, 33, false, false},
				{"same holder commits", 33, 33, true, false},
			} {
				t.Run(fmt.Sprintf("%s/row there %t/%s", level, rowThere, c.name), func(t *testing.T) {
					db := postgresDB(t, "")
					exec(t, db, "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT)", "INSERT INTO account VALUES (42, 100)")
					guard := guardTable(t, db)
					guard.TxOptions = &sql.TxOptions{Isolation: level}
					if rowThere {
						if err := guard.Store(db).Enter(t.Context(), "account:42", 1); err != nil {
							t.Fatal(err)
						}
					}
					tx := begin(t, db, level)
					if err := guard.Enter(t.Context(), tx, "account:42", c.first); err != nil {
						t.Fatal(err)
					}
					if _, err := tx.ExecContext(t.Context(), "UPDATE account SET balance = 200"); err != nil {
						t.Fatal(err)
					}

					read := 0
					done := make(chan error, 1)
					go func() {
						done <- guard.Do(t.Context(), db, "account:42", c.second, func(tx *sql.Tx) error {
							return tx.QueryRowContext(t.Context(), "SELECT balance FROM account").Scan(&read)
						})
					}()
					awaitBlocked(t, db)
					if c.commit {
						commit(t, tx)
					} else if err := tx.Rollback(); err != nil {
						t.Fatal(err)
					}
					err := <-done
					if c.stale {
						wantStale(t, err, c.second, c.first)
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					if want := map[bool]int{true: 200, false: 100}[c.commit]; read != want {
						t.Errorf("read %d, want %d", read, want)
					}
				})
			}
		}
	}
}

// TestTableSnapshot pins that an Enter which succeeds above READ COMMITTED says that the snapshot is up to date, also one
// that was taken by an earlier statement, and that at READ COMMITTED only what is read after Enter is.
func TestTableSnapshot(t *testing.T) {
	for _, level := range levels {
		for _, rowThere := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/row there %t", level, rowThere), func(t *testing.T) {
				db := postgresDB(t, "")
				exec(t, db, "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT)", "INSERT INTO account VALUES (42, 100)")
				guard := guardTable(t, db)
				if rowThere {
					if err := guard.Store(db).Enter(t.Context(), "account:42", 1); err != nil {
						t.Fatal(err)
					}
				}
				balance := func(tx *sql.Tx) (n int) {
					t.Helper()
					if err := tx.QueryRowContext(t.Context(), "SELECT balance FROM account").Scan(&n); err != nil {
						t.Fatal(err)
					}
					return n
				}
				tx := begin(t, db, level)
				if n := balance(tx); n != 100 {
					t.Fatalf("read %d", n)
				}
				err := guard.Do(t.Context(), db, "account:42", 33, func(tx *sql.Tx) error {
					_, err := tx.ExecContext(t.Context(), "UPDATE account SET balance = 200")
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				err = guard.Enter(t.Context(), tx, "account:42", 34)
				if level == sql.LevelReadCommitted {
					if err != nil {
						t.Fatal(err)
					}
					if n := balance(tx); n != 200 {
						t.Errorf("read %d after Enter", n)
					}
				} else if sqlState(err) != "40001" || errors.Is(err, fence.ErrStale) {
					t.Errorf("got %v, want a serialization failure", err)
				}
			})
		}
	}
}
