package fence

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Table guards resources by a table of its own, one row for each, in the database that the resources are in: PostgreSQL
// from 9.5 or SQLite from 3.24, through any database/sql driver. The comparison is one statement of the transaction that
// does the write, and the row stays locked until that transaction ends. The zero value is usable once [Table.Create]
// has run. It is safe for concurrent use. To compare in a row you already have, see [Column].
//
// # Isolation levels on PostgreSQL
//
// At READ COMMITTED, the server's default, Enter waits for the row and then compares with what was committed last;
// every statement after it sees all that earlier holders committed. What the transaction read before Enter may be old:
// enter first. At REPEATABLE READ and SERIALIZABLE the transaction's first statement takes the snapshot. If another
// transaction has entered the same resource and committed since then, Enter fails with SQLSTATE 40001, so an Enter that
// succeeds says that the snapshot is up to date. Do then begins again by itself; a caller of Enter must repeat the
// transaction. SERIALIZABLE can fail like that at any later statement and at commit; Do returns that error.
//
// Transactions that enter several resources must enter them in one order everywhere, such as sorted. Otherwise
// PostgreSQL ends one of two that wait for each other (SQLSTATE 40P01).
//
// # SQLite
//
// SQLite has one writer at a time, and Enter makes the transaction that writer. Set a busy timeout, or Enter fails with
// SQLITE_BUSY where it should wait. If the transaction enters first, a deferred BEGIN (the usual default of drivers) is
// as good as BEGIN IMMEDIATE. After a SELECT it is not: in WAL mode, a transaction that has read and finds that another
// has written since then fails at once with SQLITE_BUSY, whatever the timeout, and must be repeated. It is never let
// through wrongly.
type Table struct {
	// Name is the guard table, with its schema if you like. It goes into statements as it is. Defaults to "redlatch_fence".
	Name string

	// TxOptions is what Do begins transactions with. Defaults to nil, the driver's default. ReadOnly is refused.
	TxOptions *sql.TxOptions
}

// Statements are what [Table] sends, for migrations and for drivers that do not speak database/sql.
type Statements struct {
	Create  string // makes the table, unless it is there
	Enter   string // $1 resource, $2 token as a 64-bit integer; stale if it affected no row
	Largest string // $1 resource; one row, one column: the largest token, or no row
	Forget  string // $1 resource

	EnterShared string    // as Enter, of a reader's token
	Written     string    // $1 resource; one row, one column: the largest writer's token, 0 if none, or no row
	AddShared   [2]string // add one column each, which EnterShared and Written need and a table made by Create has
}

// Statements returns the table's statements. The error is [ErrInvalid], for a Name that is no identifier.
func (t Table) Statements() (Statements, error) {
	name := t.Name
	if name == "" {
		name = "redlatch_fence"
	} else if err := checkIdentifier("Table.Name", name); err != nil {
		return Statements{}, err
	}
	return Statements{
		Create: "CREATE TABLE IF NOT EXISTS " + name + " (resource TEXT NOT NULL PRIMARY KEY, " +
			"token BIGINT NOT NULL CHECK (token > 0 AND token < 9007199254740992), writer BIGINT, reader BIGINT)",
		// The row is locked and its newest version is compared, whether or not the condition lets the update through.
		Enter: "INSERT INTO " + name + " AS guard (resource, token) VALUES ($1, $2) " +
			"ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE guard.token <= excluded.token",
		Largest: "SELECT token FROM " + name + " WHERE resource = $1",
		Forget:  "DELETE FROM " + name + " WHERE resource = $1",

		EnterShared: sharedEnter(name),
		Written:     "SELECT " + written("", "token", "writer", "reader") + " FROM " + name + " WHERE resource = $1",
		AddShared:   [2]string{"ALTER TABLE " + name + " ADD COLUMN writer BIGINT", "ALTER TABLE " + name + " ADD COLUMN reader BIGINT"},
	}, nil
}

// Create makes the guard table, unless it is there. Several processes may do so at once.
func (t Table) Create(ctx context.Context, db *sql.DB) error {
	if err := checkDB(ctx, db); err != nil {
		return err
	}
	stmts, err := t.Statements()
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, stmts.Create)
	if err == nil {
		return nil
	}
	// In PostgreSQL, IF NOT EXISTS looks before it creates: if two do this at once, one fails on a catalog's unique
	// index although the table is there. A user who may use the table but not create tables ends up here as well.
	var token int64
	if probe := db.QueryRowContext(ctx, stmts.Largest, "").Scan(&token); probe == nil || errors.Is(probe, sql.ErrNoRows) {
		return nil
	}
	return fmt.Errorf("fence: creating the guard table: %w", err)
}

// Enter announces token at resource as part of tx and holds resource's guard row until tx ends. Call it before tx reads
// or writes anything that resource stands for. The announcement counts when tx commits: after a rollback the token has
// not been announced, and nothing read in tx may be built on.
//
// Enter blocks while another transaction that has entered resource is open, until ctx is done or the database gives up.
// A refusal is a *StaleError ([ErrStale]); then roll tx back: until that, others wait for the row. For an argument that
// cannot be right, errors.Is finds [ErrInvalid]. Any other error is the database's, wrapped.
func (t Table) Enter(ctx context.Context, tx Tx, resource string, token uint64) error {
	enter, err := t.entering(resource, token)
	return enterIn(ctx, tx, enter, err)
}

// Do begins a transaction, enters resource, runs fn and commits. It is all that most callers need.
//
// If Enter fails, fn does not run. If fn fails, the transaction is rolled back, with the announcement, and fn's error
// is returned as it is: throw away what fn read. If the commit fails with a lost connection, it is not known whether it
// took place. When ctx is done the transaction is rolled back, and if fn returns nil all the same, errors.Is finds the
// cause of ctx. So with the lock's own context, no commit begins after the lock was found lost.
func (t Table) Do(ctx context.Context, db TxBeginner, resource string, token uint64, fn func(tx *sql.Tx) error) error {
	enter, err := t.entering(resource, token)
	return inTx(ctx, db, t.TxOptions, err, enter, fn)
}

// Largest returns the largest token announced at resource by a committed transaction or by tx itself, 0 if none.
func (t Table) Largest(ctx context.Context, tx Tx, resource string) (uint64, error) {
	if err := checkDB(ctx, tx); err != nil {
		return 0, err
	}
	stmts, err := t.Statements()
	if err != nil {
		return 0, err
	}
	return largestBy(ctx, tx, stmts.Largest, resource)
}

// Forget deletes resource's row. A guard that has forgotten accepts the old holder, so call it only where the resource
// itself is deleted for good, best in the same transaction.
func (t Table) Forget(ctx context.Context, tx Tx, resource string) error {
	if err := checkDB(ctx, tx); err != nil {
		return err
	}
	if err := checkName(resource); err != nil {
		return err
	}
	stmts, err := t.Statements()
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, stmts.Forget, resource); err != nil {
		return fmt.Errorf("fence: forgetting %q: %w", resource, err)
	}
	return nil
}

// Store returns a [SharedStore] that announces tokens in transactions of their own. It is for [HTTP] and [Admit], and
// for a holder that announces itself before it reads elsewhere; a write needs Enter in its own transaction.
func (t Table) Store(db *sql.DB) SharedStore { return tableStore{t, db} }

type tableStore struct {
	table Table
	db    *sql.DB
}

func (s tableStore) Enter(ctx context.Context, resource string, token uint64) error {
	enter, err := s.table.entering(resource, token)
	return s.retry(ctx, enter, err)
}

func (s tableStore) EnterShared(ctx context.Context, resource string, token uint64) error {
	enter, err := s.table.enteringShared(resource, token)
	return s.retry(ctx, enter, err)
}

// retry runs enter until the database has an answer. invalid is what is wrong with its arguments.
func (s tableStore) retry(ctx context.Context, enter enterFunc, invalid error) error {
	if err := cmp.Or(checkContext(ctx), invalid); err != nil {
		return err
	}
	for {
		err := enter(ctx, s.db)
		// A database whose default is above READ COMMITTED lets the statement fail when it had to wait, see enterTx.
		if err == nil || !serializationFailure(err) {
			return err
		}
	}
}

// entering returns what compares and announces in one statement.
func (t Table) entering(resource string, token uint64) (enterFunc, error) {
	stmts, err := t.Statements()
	return func(ctx context.Context, tx Tx) error {
		return announce(ctx, tx, stmts.Enter, stmts.Largest, resource, token)
	}, cmp.Or(err, check(resource, token))
}

// announce runs the statement that enters. If that takes no token, it runs the one that tells which token is in the
// way.
func announce(ctx context.Context, tx Tx, enter, query, resource string, token uint64) error {
	if err := checkDB(ctx, tx); err != nil {
		return err
	}
	// The second turn is for a row that was deleted between the two statements of the first turn, outside a
	// transaction.
	for range 2 {
		result, err := tx.ExecContext(ctx, enter, resource, int64(token))
		if sqlState(err) == "42P01" { // PostgreSQL knows no such table
			err = fmt.Errorf("%w (make the guard table by Table.Create, or name it in Table.Name)", err)
		}
		if err != nil {
			return fmt.Errorf("fence: entering %q: %w", resource, err)
		}
		n, err := result.RowsAffected()
		if err != nil {
			return fmt.Errorf("fence: entering %q: %w", resource, err)
		}
		if n > 0 {
			return nil
		}
		// In a transaction the row is locked by now, so this is the token that refused us.
		largest, err := largestBy(ctx, tx, query, resource)
		if err != nil {
			return err
		}
		if largest > token {
			return &StaleError{Resource: resource, Token: token, Largest: largest}
		}
	}
	return fmt.Errorf("fence: entering %q: the database took no token and names no larger one: look for triggers, rules or row security on the guard table", resource)
}

// largestBy reads a token by query, 0 if there is none.
func largestBy(ctx context.Context, tx Tx, query, resource string) (uint64, error) {
	var token int64
	switch err := tx.QueryRowContext(ctx, query, resource).Scan(&token); {
	case errors.Is(err, sql.ErrNoRows):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("fence: reading the largest token of %q: %w", resource, err)
	}
	return uint64(token), nil
}
