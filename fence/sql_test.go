package fence

import (
	"context"
	"database/sql"
	"errors"
	"testing"
)

// The guards are tested with real databases in the module guardtest; here is what needs none.

func TestCheckIdentifier(t *testing.T) {
	for _, name := range []string{"a", "redlatch_fence", "_x9", "app.account", `"order"`, `"my schema"."T"`, `app."order"`, "A.B.c"} {
		if err := checkIdentifier("Table.Name", name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", " ", "a b", "9a", "a;", "a.", ".a", "a..b", `"a`, `""`, `"a"b`, `a"b"`, "a--", "a'", "a.9", "tâche", "\"a\x00\"", "\"a\x00", "\"a\x00.b", "a.b;c"} {
		if err := checkIdentifier("Table.Name", name); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", name, err)
		}
	}
}

// pool embeds a pool, as sqlx and others do.
type pool struct{ *sql.DB }

func TestSQLRefusesInvalid(t *testing.T) {
	ctx := t.Context()
	var noDB sql.DB // touching it would panic, so this also pins that nothing is sent
	var noTx sql.Tx
	fn := func(*sql.Tx) error { t.Error("fn ran"); return nil }
	readOnly := &sql.TxOptions{ReadOnly: true}
	account := Column{Table: "account"}
	for name, err := range map[string]error{
		"Table.Enter on a pool":           Table{}.Enter(ctx, &noDB, "a", 1),
		"Table.Enter on an embedded pool": Table{}.Enter(ctx, pool{&noDB}, "a", 1),
		"Table.Enter on nil":              Table{}.Enter(ctx, nil, "a", 1),
		"Column.Enter on a pool":          account.Enter(ctx, &noDB, 1, 1),
		"token 0":                         Table{}.Enter(ctx, &noTx, "a", 0),
		"token 2^53":                      Table{}.Enter(ctx, &noTx, "a", MaxToken+1),
		"empty resource":                  Table{}.Enter(ctx, &noTx, "", 1),
		"Table.Name":                      Table{Name: "a; DROP TABLE a"}.Enter(ctx, &noTx, "a", 1),
		"Table.Name in Create":            Table{Name: "a b"}.Create(ctx, &noDB),
		"Table.Name in Forget":            Table{Name: "a b"}.Forget(ctx, &noTx, "a"),
		"Forget empty resource":           Table{}.Forget(ctx, &noTx, ""),
		"Table.TxOptions":                 Table{TxOptions: readOnly}.Do(ctx, &noDB, "a", 1, fn),
		"Store token 0":                   Table{}.Store(&noDB).Enter(ctx, "a", 0),
		"Column.Table missing":            Column{}.Enter(ctx, &noTx, 1, 1),
		"Column.Key":                      Column{Table: "a", Key: "a b"}.Enter(ctx, &noTx, 1, 1),
		"Column.Token":                    Column{Table: "a", Token: "a b"}.Enter(ctx, &noTx, 1, 1),
		"Column token 0":                  account.Enter(ctx, &noTx, 1, 0),
		"Table.EnterShared on a pool":     Table{}.EnterShared(ctx, &noDB, "a", 1),
		"Table.EnterShared token 0":       Table{}.EnterShared(ctx, &noTx, "a", 0),
		"Table.TxOptions of a reader":     Table{TxOptions: readOnly}.DoShared(ctx, &noDB, "a", 1, fn),
		"Table.Name in AddShared":         Table{Name: "a b"}.AddShared(ctx, &noDB),
		"Column.EnterShared on a pool":    account.EnterShared(ctx, &noDB, 1, 1),
		"Column.EnterShared token 0":      account.EnterShared(ctx, &noTx, 1, 0),
		"Column.Writer":                   Column{Table: "a", Writer: "a b"}.EnterShared(ctx, &noTx, 1, 1),
		"Column.Reader":                   Column{Table: "a", Reader: "a b"}.EnterShared(ctx, &noTx, 1, 1),
		"Column.TxOptions of a reader":    Column{Table: "a", TxOptions: readOnly}.DoShared(ctx, &noDB, 1, 1, fn),
		"Column.TxOptions":                Column{Table: "a", TxOptions: readOnly}.Do(ctx, &noDB, 1, 1, fn),
	} {
		if !errors.Is(err, ErrInvalid) || errors.Is(err, ErrStale) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

// countless is a transaction whose driver does not say how many rows a statement has changed. To ask it for a row would panic.
type countless struct {
	Tx
	failed error
}

func (tx countless) ExecContext(context.Context, string, ...any) (sql.Result, error) { return tx, nil }

func (tx countless) LastInsertId() (int64, error) { return 0, tx.failed }

func (tx countless) RowsAffected() (int64, error) { return 0, tx.failed }

// A driver that does not say whether the statement took the token is an error that says so.
func TestSQLWithoutRowsAffected(t *testing.T) {
	tx := countless{failed: errors.New("no rows are counted")}
	for name, err := range map[string]error{
		"Table":  Table{}.Enter(t.Context(), tx, "a", 1),
		"Column": Column{Table: "account"}.Enter(t.Context(), tx, 1, 1),
	} {
		if !errors.Is(err, tx.failed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
