package fence

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// For readers, SQL needs two columns beside the token's, which has the largest token of all and is the only one that
// Enter knows: writer, the largest writer's token, and reader, the largest token of all as a reader left it. Writer
// counts only while reader equals the token: an Enter, of any version, raises the token and so makes writer void.

// written returns the expression for the largest writer's token in a row, 0 if none. of is the row's name with a dot,
// or empty.
func written(of, token, writer, reader string) string {
	// rule: resource-refuses-reader
	return fmt.Sprintf("CASE WHEN %[1]s%[4]s = %[1]s%[2]s THEN %[1]s%[3]s ELSE COALESCE(%[1]s%[2]s, 0) END", of, token, writer, reader)
}

// sharedEnter returns Statements.EnterShared. All its expressions read the row as it was.
func sharedEnter(name string) string {
	const largest = "CASE WHEN guard.token > excluded.token THEN guard.token ELSE excluded.token END"
	writer := written("guard.", "token", "writer", "reader")
	return "INSERT INTO " + name + " AS guard (resource, token, writer, reader) VALUES ($1, $2, 0, $2) " +
		"ON CONFLICT (resource) DO UPDATE SET writer = " + writer + ", token = " + largest + ", reader = " + largest +
		" WHERE " + writer + " <= excluded.token"
}

// AddShared adds the columns that EnterShared needs to a guard table that was made by a version without it; a table
// that Create makes has them. Several processes may do so at once, and clients of that version may go on using the
// table. It changes the table's definition: PostgreSQL waits for that until no transaction uses the table.
func (t Table) AddShared(ctx context.Context, db *sql.DB) error {
	if err := checkDB(ctx, db); err != nil {
		return err
	}
	stmts, err := t.Statements()
	if err != nil {
		return err
	}
	if _, err := largestBy(ctx, db, stmts.Written, ""); err == nil {
		return nil // they are there
	}
	var errs []error
	for _, add := range stmts.AddShared {
		_, err := db.ExecContext(ctx, add)
		errs = append(errs, err)
	}
	// If two processes do this at once, one fails although the columns are there.
	if _, err := largestBy(ctx, db, stmts.Written, ""); err != nil {
		return fmt.Errorf("fence: adding the readers' columns to the guard table: %w", errors.Join(append(errs, err)...))
	}
	return nil
}

// EnterShared announces a reader's token at resource as part of tx, see [SharedStore]; all else is as for
// [Table.Enter]. It, too, holds the guard row until tx ends, so readers' transactions on one resource run one after the
// other. To let them overlap, announce the token by the EnterShared of [Table.Store], and read in a transaction that
// begins after it: no earlier writer can change what is read there any more, but a later one may have.
func (t Table) EnterShared(ctx context.Context, tx Tx, resource string, token uint64) error {
	enter, err := t.enteringShared(resource, token)
	return enterIn(ctx, tx, enter, err)
}

// DoShared is [Table.Do] for a reader: it begins a transaction, enters resource by [Table.EnterShared], runs fn and commits.
func (t Table) DoShared(ctx context.Context, db TxBeginner, resource string, token uint64, fn func(tx *sql.Tx) error) error {
	enter, err := t.enteringShared(resource, token)
	return inTx(ctx, db, t.TxOptions, err, enter, fn)
}

func (t Table) enteringShared(resource string, token uint64) (enterFunc, error) {
	stmts, err := t.Statements()
	return func(ctx context.Context, tx Tx) error {
		err := announce(ctx, tx, stmts.EnterShared, stmts.Written, resource, token)
		return explainColumn(err, "Table.AddShared adds them to a table of an earlier version")
	}, cmp.Or(err, check(resource, token))
}

// EnterShared announces a reader's token at the row with the given key as part of tx, see [SharedStore], and locks the
// row until tx ends, as [Table.EnterShared] does; all else is as for [Column.Enter]. It needs two more columns:
//
//	ALTER TABLE account ADD COLUMN fencing_writer BIGINT
//	ALTER TABLE account ADD COLUMN fencing_reader BIGINT
func (c Column) EnterShared(ctx context.Context, tx Tx, key any, token uint64) error {
	enter, err := c.enteringShared(key, token)
	return enterIn(ctx, tx, enter, err)
}

// DoShared begins a transaction, enters the row by [Column.EnterShared], runs fn and commits.
func (c Column) DoShared(ctx context.Context, db TxBeginner, key any, token uint64, fn func(tx *sql.Tx) error) error {
	enter, err := c.enteringShared(key, token)
	return inTx(ctx, db, c.TxOptions, err, enter, fn)
}

func (c Column) enteringShared(key any, token uint64) (enterFunc, error) {
	c, err := c.complete()
	writer := written("", c.Token, c.Writer, c.Reader)
	largest := fmt.Sprintf("CASE WHEN COALESCE(%[1]s, 0) > $1 THEN %[1]s ELSE $1 END", c.Token)
	set := fmt.Sprintf("%s = %s, %s = %[5]s, %[4]s = %[5]s", c.Writer, writer, c.Token, c.Reader, largest)
	return func(ctx context.Context, tx Tx) error {
		err := c.announce(ctx, tx, set, writer, key, token)
		return explainColumn(err, "add them to the table, both BIGINT, or name them in Column.Writer and Column.Reader")
	}, cmp.Or(err, checkToken(token))
}

// explainColumn adds what to do if the database knows no such column, which PostgreSQL says by SQLSTATE 42703.
func explainColumn(err error, remedy string) error {
	if sqlState(err) == "42703" {
		return fmt.Errorf("%w (readers need two columns more: %s)", err, remedy)
	}
	return err
}
