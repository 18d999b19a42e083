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
