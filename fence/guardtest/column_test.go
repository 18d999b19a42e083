package guardtest

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/fence"
)

func TestColumn(t *testing.T) {
	for name, db := range map[string]*sql.DB{"PostgreSQL": postgresDB(t, ""), "SQLite": sqliteDB(t, "")} {
		t.Run(name, func(t *testing.T) {
			exec(t, db, `CREATE TABLE "order" (id BIGINT PRIMARY KEY, name TEXT UNIQUE, kind TEXT, fencing_token BIGINT, other BIGINT)`,
				`INSERT INTO "order" (id, name, kind) VALUES (1, 'one', 'x'), (2, 'two', 'x')`)
			enter := func(c fence.Column, key any, token uint64) error {
				return c.Do(t.Context(), db, key, token, func(*sql.Tx) error { return nil })
			}
			byID := fence.Column{Table: `"order"`}
			byName := fence.Column{Table: `"order"`, Key: "name", Token: "other"}
			for _, token := range []uint64{33, 33, 34, fence.MaxToken} {
				if err := enter(byID, 1, token); err != nil {
					t.Fatal(err)
				}
				if err := enter(byName, "one", token); err != nil {
					t.Fatal(err)
				}
			}
			err := enter(byID, 1, fence.MaxToken-1)
			wantStale(t, err, fence.MaxToken-1, fence.MaxToken)
			if !strings.Contains(err.Error(), "order") || !strings.Contains(err.Error(), "[1]") {
				t.Errorf("%q does not name the row", err)
			}
			wantStale(t, enter(byName, "one", 33), 33, fence.MaxToken)
			if err := enter(byID, 2, 1); err != nil { // another row has another guard
				t.Error(err)
			}

			if err := enter(byID, 3, 33); !errors.Is(err, sql.ErrNoRows) || errors.Is(err, fence.ErrStale) {
				t.Errorf("no such row: %v, want sql.ErrNoRows", err)
			}
			if err := enter(fence.Column{Table: "nowhere"}, 1, 33); err == nil || errors.Is(err, fence.ErrStale) {
				t.Errorf("no such table: %v", err)
			}
		})
	}
}

// TestColumnOfSeveralRows pins that a key of several rows is refused, whichever of them have seen a larger token.
func TestColumnOfSeveralRows(t *testing.T) {
	for name, db := range map[string]*sql.DB{"PostgreSQL": postgresDB(t, ""), "SQLite": sqliteDB(t, "")} {
		t.Run(name, func(t *testing.T) {
			exec(t, db, "CREATE TABLE account (id BIGINT PRIMARY KEY, owner TEXT, fencing_token BIGINT, fencing_writer BIGINT, fencing_reader BIGINT)",
				"INSERT INTO account (id, owner, fencing_token) VALUES (1, 'none', NULL), (2, 'none', NULL), (3, 'one', 35), (4, 'one', NULL), (5, 'all', 35), (6, 'all', 36)")
			guard := fence.Column{Table: "account", Key: "owner"}
			for _, owner := range []string{"none", "one", "all"} {
				fn := func(*sql.Tx) error { t.Errorf("%s: it is let in", owner); return nil }
				for _, err := range []error{guard.Do(t.Context(), db, owner, 34, fn), guard.DoShared(t.Context(), db, owner, 34, fn)} {
					if !errors.Is(err, fence.ErrInvalid) || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "Column.Key") {
						t.Errorf("%s: %v, want ErrInvalid with the setting", owner, err)
					}
				}
			}
		})
	}
}

// TestColumnWaits pins that Enter waits for a transaction that has the row, compares then, and reads what was committed,
// at every isolation level.
func TestColumnWaits(t *testing.T) {
	for _, level := range levels {
		for _, second := range []uint64{33, 35} {
			t.Run(level.String(), func(t *testing.T) {
				db := postgresDB(t, "")
				exec(t, db, "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT, fencing_token BIGINT)", "INSERT INTO account VALUES (42, 100)")
				guard := fence.Column{Table: "account", TxOptions: &sql.TxOptions{Isolation: level}}
				tx := begin(t, db, level)
				if err := guard.Enter(t.Context(), tx, 42, 34); err != nil {
					t.Fatal(err)
				}
				if _, err := tx.ExecContext(t.Context(), "UPDATE account SET balance = 200"); err != nil {
					t.Fatal(err)
				}
				read := 0
				done := make(chan error, 1)
				go func() {
					done <- guard.Do(t.Context(), db, 42, second, func(tx *sql.Tx) error {
						return tx.QueryRowContext(t.Context(), "SELECT balance FROM account").Scan(&read)
					})
				}()
				awaitBlocked(t, db)
				commit(t, tx)
				err := <-done
				if second < 34 {
					wantStale(t, err, second, 34)
				} else if err != nil || read != 200 {
					t.Errorf("read %d, %v", read, err)
				}
			})
		}
	}
}

// TestColumnTrigger pins that a database which takes no token, and has no larger one either, is not taken for a success.
func TestColumnTrigger(t *testing.T) {
	db := postgresDB(t, "")
	exec(t, db, "CREATE TABLE account (id BIGINT PRIMARY KEY, fencing_token BIGINT)", "INSERT INTO account VALUES (42, 33)",
		"CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
		"CREATE TRIGGER skip BEFORE UPDATE ON account FOR EACH ROW EXECUTE FUNCTION skip()")
	for _, token := range []uint64{33, 34} {
		err := fence.Column{Table: "account"}.Do(t.Context(), db, 42, token, func(*sql.Tx) error { t.Error("fn ran"); return nil })
		if err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("%d: %v", token, err)
		}
	}
}

// between runs meanwhile after the first statement of an Enter.
type between struct {
	fence.Tx
	meanwhile func()
}

func (b *between) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	result, err := b.Tx.ExecContext(ctx, query, args...)
	if b.meanwhile != nil {
		b.meanwhile()
		b.meanwhile = nil
	}
	return result, err
}

// TestEnterMeetsAnother pins what an Enter makes of a row that another inserts or deletes between its comparison, which
// took no token, and the question why.
func TestEnterMeetsAnother(t *testing.T) {
	db := postgresDB(t, "")
	exec(t, db, "CREATE TABLE account (id BIGINT PRIMARY KEY, fencing_token BIGINT)")
	column := fence.Column{Table: "account"}
	insert := func(id int, token any) *between {
		return &between{begin(t, db, sql.LevelReadCommitted), func() {
			if _, err := db.Exec("INSERT INTO account VALUES ($1, $2)", id, token); err != nil {
				t.Error(err)
			}
		}}
	}
	if err := column.Enter(t.Context(), insert(1, 33), 1, 34); err != nil {
		t.Errorf("a row that appears with a smaller token: %v", err)
	}
	if err := column.Enter(t.Context(), insert(3, nil), 3, 34); err != nil {
		t.Errorf("a row that appears without a token: %v", err)
	}
	wantStale(t, column.Enter(t.Context(), insert(2, 35), 2, 34), 34, 35)

	table := guardTable(t, db)
	if err := table.Store(db).Enter(t.Context(), "a", 34); err != nil {
		t.Fatal(err)
	}
	forget := &between{db, func() {
		if err := table.Forget(t.Context(), db, "a"); err != nil {
			t.Error(err)
		}
	}}
	if err := table.Enter(t.Context(), forget, "a", 33); err != nil {
		t.Errorf("a row that is forgotten: %v", err)
	}
}
