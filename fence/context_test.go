package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/fence"
)

// noTx is a transaction that nothing is to be sent to.
type noTx struct{ t *testing.T }

func (tx noTx) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	tx.t.Error("sent")
	return nil, nil
}

func (tx noTx) QueryRowContext(context.Context, string, ...any) *sql.Row {
	tx.t.Error("sent")
	return nil
}

func (tx noTx) BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error) {
	tx.t.Error("begun")
	return nil, sql.ErrConnDone
}

// What cannot be right is refused before a transaction is begun, also a database or a function that is nil.
func TestDoBeginsNothing(t *testing.T) {
	var table fence.Table
	column, ctx, db := fence.Column{Table: "account"}, t.Context(), noTx{t}
	nothing := func(*sql.Tx) error { t.Error("done"); return nil }
	_, largest := table.Largest(ctx, nil, "r")
	for what, err := range map[string]error{
		"token 0":        table.Do(ctx, db, "r", 0, nothing),
		"empty resource": table.DoShared(ctx, db, "", 1, nothing),
		"Table.Name":     fence.Table{Name: "a b"}.Do(ctx, db, "r", 1, nothing),
		"Column token 0": column.Do(ctx, db, 1, 0, nothing),
		"Column.Table":   fence.Column{}.DoShared(ctx, db, 1, 1, nothing),
		"fn is nil":      table.Do(ctx, db, "r", 1, nil),
		"Column.Do":      column.DoShared(ctx, db, 1, 1, nil),
		"no database":    table.Do(ctx, nil, "r", 1, nothing),
		"a nil *sql.DB":  column.Do(ctx, (*sql.DB)(nil), 1, 1, nothing),
		"a nil *sql.Tx":  table.Enter(ctx, (*sql.Tx)(nil), "r", 1),
		"Create":         table.Create(ctx, nil),
		"AddShared":      table.AddShared(ctx, nil),
		"Largest":        largest,
		"Forget":         table.Forget(ctx, (*sql.Tx)(nil), "r"),
		"Store":          table.Store(nil).Enter(ctx, "r", 1),
	} {
		if !errors.Is(err, fence.ErrInvalid) || strings.Contains(what, "nil") && !strings.Contains(err.Error(), "is nil: pass the ") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A ctx that is nil is refused before anything is done.
func TestNilContext(t *testing.T) {
	var none context.Context
	var memory fence.Memory
	var table fence.Table
	column := fence.Column{Table: "account"}
	tx := noTx{t}
	nothing := func(*sql.Tx) error { t.Error("done"); return nil }
	sent := false
	redis := fence.Redis{Eval: func(context.Context, string, []string, []string) (any, error) {
		sent = true
		return []any{"ok", ""}, nil
	}}
	_, opening := redis.Open(none, "key", 1)
	_, admitting := fence.Admit(none, &memory, "r", "1")
	_, largest := table.Largest(none, tx, "r")
	for what, err := range map[string]error{
		"Memory.Enter":      memory.Enter(none, "r", 1),
		"Memory.Do":         memory.Do(none, "r", 1, func() error { t.Error("done"); return nil }),
		"Table.Create":      table.Create(none, nil),
		"Table.Enter":       table.Enter(none, tx, "r", 1),
		"Table.Do":          table.Do(none, tx, "r", 1, nothing),
		"Table.Largest":     largest,
		"Table.Forget":      table.Forget(none, tx, "r"),
		"Table.Store.Enter": table.Store(nil).Enter(none, "r", 1),
		"Table.AddShared":   table.AddShared(none, nil),
		"Table.DoShared":    table.DoShared(none, tx, "r", 1, nothing),
		"Column.Enter":      column.Enter(none, tx, "r", 1),
		"Column.DoShared":   column.DoShared(none, tx, "r", 1, nothing),
		"Column.Do":         column.Do(none, tx, "r", 1, nothing),
		"Redis.Open":        opening,
		"Redis.Enter":       redis.Enter(none, "key", 1),
		"Redis.Forget":      redis.Forget(none, "key"),
		"Admit":             admitting,
	} {
		if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "ctx is nil: pass context.Background()") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if sent {
		t.Error("a script was sent")
	}
	access, err := redis.Open(t.Context(), "key", 1)
	if err != nil {
		t.Fatal(err)
	}
	sent = false
	_, _, get := access.Get(none)
	_, getAll := access.HGetAll(none)
	_, run := access.Run(none, "return 1", nil, nil)
	for what, err := range map[string]error{
		"Get": get, "HGetAll": getAll, "Run": run, "Del": access.Del(none),
		"Set": access.Set(none, "v", 0), "HSet": access.HSet(none, map[string]string{"f": "v"}),
	} {
		if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "ctx is nil") || sent {
			t.Errorf("%s: %v", what, err)
		}
	}
}
