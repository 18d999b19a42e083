package fence

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// Tx is the part of a database/sql transaction that a guard needs: *sql.Tx, a type that embeds one, or a *sql.Conn on
// which the caller has begun a transaction by hand. A connection pool such as *sql.DB is refused with [ErrInvalid]:
// there the comparison would be committed before the write that it must protect.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// TxBeginner begins transactions: *sql.DB or *sql.Conn.
type TxBeginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// checkTx refuses a pool, which it recognises by a method that only pools have, even if it is embedded in another type.
func checkTx(tx Tx) error {
	if _, pool := tx.(interface{ SetMaxOpenConns(n int) }); pool {
		return fmt.Errorf("%w: %T is no transaction: pass the transaction that also does the write, or use Do", ErrInvalid, tx)
	}
	return nil
}

// checkDB refuses a ctx or a database that is nil.
func checkDB(ctx context.Context, db any) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	switch db {
	case nil, (*sql.DB)(nil), (*sql.Conn)(nil), (*sql.Tx)(nil):
		return fmt.Errorf("%w: the database is nil: pass the one that the token is in, or a transaction of it", ErrInvalid)
	}
	return nil
}

// enterFunc announces a token as part of tx.
type enterFunc func(ctx context.Context, tx Tx) error

// enterIn runs enter in a transaction of the caller's. invalid is what is wrong with its arguments.
func enterIn(ctx context.Context, tx Tx, enter enterFunc, invalid error) error {
	if err := cmp.Or(checkTx(tx), invalid); err != nil {
		return err
	}
	return enter(ctx, tx)
}

// inTx runs enter and then fn in one transaction and commits it. invalid is what is wrong with the other arguments.
func inTx(ctx context.Context, db TxBeginner, opts *sql.TxOptions, invalid error, enter enterFunc, fn func(*sql.Tx) error) error {
	if err := cmp.Or(checkDB(ctx, db), invalid); err != nil {
		return err
	}
	switch {
	case fn == nil:
		return fmt.Errorf("%w: fn is nil: pass the function to run in the transaction", ErrInvalid)
	case opts != nil && opts.ReadOnly:
		return fmt.Errorf("%w: TxOptions.ReadOnly is set: entering writes the token, also before a read; leave it false", ErrInvalid)
	}
	tx, err := enterTx(ctx, db, opts, enter)
	if err != nil {
		return err
	}
	// This does nothing after a commit; it ends the transaction when fn fails, panics or calls runtime.Goexit.
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	err = tx.Commit()
	if ctx.Err() != nil && (errors.Is(err, sql.ErrTxDone) || errors.Is(err, ctx.Err())) {
		// database/sql may have rolled back by itself, and then says no more than that the transaction is over.
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if err != nil {
		return fmt.Errorf("fence: commit: %w", err)
	}
	return nil
}

// enterTx begins a transaction and enters. Above READ COMMITTED, PostgreSQL takes the snapshot before it waits for the
// guard row, and answers a wait that ended in another's commit with a serialization failure. Nothing of the caller's
// has run by then, so a new transaction with a new snapshot is the whole cure. Each further turn of the loop takes
// another transaction's commit; the loop also ends with ctx, in which no transaction begins any more.
func enterTx(ctx context.Context, db TxBeginner, opts *sql.TxOptions, enter enterFunc) (*sql.Tx, error) {
	for {
		tx, err := db.BeginTx(ctx, opts)
		if err != nil {
			return nil, fmt.Errorf("fence: begin: %w", err)
		}
		if err = enter(ctx, tx); err == nil {
			return tx, nil
		}
		tx.Rollback()
		if !serializationFailure(err) {
			return nil, err
		}
	}
}

func serializationFailure(err error) bool { return sqlState(err) == "40001" }

// sqlState finds a SQLSTATE in the errors of pgx and lib/pq without depending on either.
func sqlState(err error) string {
	if state, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return state.SQLState()
	}
	return ""
}

// checkIdentifier refuses a text that cannot be a table or column name: plain or double-quoted parts joined by dots.
// Names are put into statements as they are, so this also keeps anything else out of the statements.
func checkIdentifier(setting, name string) error {
	rest := name
	for {
		n := identifierPart(rest)
		if n == 0 {
			return fmt.Errorf("%w: %s %q: want a SQL identifier such as account, app.account or \"order\" in double quotes", ErrInvalid, setting, name)
		}
		if rest = rest[n:]; rest == "" {
			return nil
		}
		var dot bool
		if rest, dot = strings.CutPrefix(rest, "."); !dot {
			rest = "" // identifierPart refuses it
		}
	}
}

// identifierPart returns the length of the identifier that s starts with, 0 if there is none.
func identifierPart(s string) int {
	if quoted, ok := strings.CutPrefix(s, `"`); ok {
		end := strings.IndexAny(quoted, "\"\x00")
		if end < 1 || quoted[end] == 0 {
			return 0
		}
		return end + 2
	}
	n := 0
	for n < len(s) && (s[n] == '_' || 'a' <= s[n]|0x20 && s[n]|0x20 <= 'z' || n > 0 && '0' <= s[n] && s[n] <= '9') {
		n++
	}
	return n
}
