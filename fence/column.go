package fence

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Column guards rows of a table you already have by a BIGINT column in them, in PostgreSQL or SQLite:
//
//	ALTER TABLE account ADD COLUMN fencing_token BIGINT
//
// Compared with [Table] it saves a row and a lock, there is nothing to forget, and a copy of the row takes its token
// along. The row must exist; a row that a holder inserts is inserted with the holder's token. What [Table] says about
// isolation levels and SQLite holds here as well. It is safe for concurrent use.
//
// Entering is an UPDATE of the row, after which the transaction has it locked and reads and writes what it likes:
//
//	UPDATE account SET fencing_token = $token
//	 WHERE id = $id AND COALESCE(fencing_token, 0) <= $token AND (SELECT COUNT(*) FROM account WHERE id = $id) = 1
//
// # In your own statements
//
// The same comparison can be part of statements of yours, at no extra round trip. To enter and read at once:
//
//	UPDATE account SET fencing_token = $token
//	 WHERE id = $id AND COALESCE(fencing_token, 0) <= $token RETURNING balance
//
// and to write, in a later transaction even, as long as the holder entered before it read:
//
//	UPDATE account SET balance = $balance, fencing_token = $token
//	 WHERE id = $id AND COALESCE(fencing_token, 0) <= $token
//
// If no row is returned or affected, nothing was written: the token is stale or the row is not there. [Column.Enter],
// called then with the same key and token, returns the error that says which.
type Column struct {
	// Table has the rows to guard. It goes into statements as it is. Required.
	Table string

	// Key is the column that tells one row from all others, of any type. A key that several rows have is refused. Defaults
	// to "id".
	Key string

	// Token is the column, BIGINT, that holds the largest token; NULL stands for none. Defaults to "fencing_token".
	Token string

	// Writer and Reader are columns, BIGINT, that EnterShared needs and nothing else: the largest writer's token, and the
	// largest token of all as a reader left it. They default to "fencing_writer" and "fencing_reader".
	Writer, Reader string

	// TxOptions is what Do begins transactions with. Defaults to nil, the driver's default. ReadOnly is refused.
	TxOptions *sql.TxOptions
}

// Enter announces token at the row with the given key as part of tx and locks that row until tx ends. When to call it,
// what it waits for and what a rollback means is described at [Table.Enter]. A refusal is a *StaleError ([ErrStale]).
// If there is no such row, errors.Is finds sql.ErrNoRows. For an argument that cannot be right, errors.Is finds
// [ErrInvalid].
func (c Column) Enter(ctx context.Context, tx Tx, key any, token uint64) error {
	enter, err := c.entering(key, token)
	return enterIn(ctx, tx, enter, err)
}

// Do begins a transaction, enters the row, runs fn and commits. Failures leave the state that [Table.Do] describes.
func (c Column) Do(ctx context.Context, db TxBeginner, key any, token uint64, fn func(tx *sql.Tx) error) error {
	enter, err := c.entering(key, token)
	return inTx(ctx, db, c.TxOptions, err, enter, fn)
}

// entering returns what compares and announces in one statement.
func (c Column) entering(key any, token uint64) (enterFunc, error) {
	c, err := c.complete()
	return func(ctx context.Context, tx Tx) error {
		return c.announce(ctx, tx, c.Token+" = $1", "COALESCE("+c.Token+", 0)", key, token)
	}, cmp.Or(err, checkToken(token))
}

// complete fills in the defaults and checks the names.
func (c Column) complete() (Column, error) {
	c.Key, c.Token = cmp.Or(c.Key, "id"), cmp.Or(c.Token, "fencing_token")
	c.Writer, c.Reader = cmp.Or(c.Writer, "fencing_writer"), cmp.Or(c.Reader, "fencing_reader")
	return c, errors.Join(
		checkIdentifier("Column.Table", c.Table),
		checkIdentifier("Column.Key", c.Key),
		checkIdentifier("Column.Token", c.Token),
		checkIdentifier("Column.Writer", c.Writer),
		checkIdentifier("Column.Reader", c.Reader),
	)
}

// announce sets what set says in the row, unless seen, which is the largest token there, is larger than this one. If that
// takes no token, it asks why.
func (c Column) announce(ctx context.Context, tx Tx, set, seen string, key any, token uint64) error {
	if err := checkDB(ctx, tx); err != nil {
		return err
	}
	// Of several rows with the key, some could take the token and others refuse it: then neither answer would be right.
	update := fmt.Sprintf("UPDATE %[1]s SET %[2]s WHERE %[3]s = $2 AND %[4]s <= $1 AND (SELECT COUNT(*) FROM %[1]s WHERE %[3]s = $2) = 1",
		c.Table, set, c.Key, seen)
	query := fmt.Sprintf("SELECT COUNT(*), COALESCE(MAX(%s), 0) FROM %s WHERE %s = $1", seen, c.Table, c.Key)
	resource := fmt.Sprintf("%s[%v]", c.Table, key)

	// The second turn is for a row that was inserted between the two statements of the first turn.
	for range 2 {
		result, err := tx.ExecContext(ctx, update, int64(token), key)
		if err != nil {
			return fmt.Errorf("fence: entering %s: %w", resource, err)
		}
		n, err := result.RowsAffected()
		if err != nil {
			return fmt.Errorf("fence: entering %s: %w", resource, err)
		}
		if n == 1 {
			return nil
		}
		var rows, largest int64
		if err = tx.QueryRowContext(ctx, query, key).Scan(&rows, &largest); err == nil && rows == 0 {
			err = sql.ErrNoRows
		}
		switch {
		case err != nil:
			return fmt.Errorf("fence: entering %s: %w", resource, err)
		case rows > 1:
			return fmt.Errorf("%w: %s matches %d rows: Column.Key must be a unique column", ErrInvalid, resource, rows)
		case uint64(largest) > token:
			return &StaleError{Resource: resource, Token: token, Largest: uint64(largest)}
		}
	}
	return fmt.Errorf("fence: entering %s: the database took no token and names no larger one: look for triggers, rules or row security on the table", resource)
}
