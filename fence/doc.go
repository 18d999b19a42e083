// Package fence has guards for the places where fencing tokens are checked: a SQL table or row, a Redis key, an HTTP
// handler, a value in memory.
//
// A distributed lock is a promise about time, and a paused process does not know what time it is. Its holder can wake up
// with the lock long gone, and write. Only what is written to can stop that. So each holder of a Redlatch lock has a
// fencing token, a number larger than those of all holders before it, sends it along with each access, and the resource
// refuses a token smaller than the largest it has seen.
//
// # What to use first
//
// If the data is in PostgreSQL or SQLite, use [Table] for a table of tokens, or [Column] if the row you protect can
// have one more column. Do what the lock was taken for inside Do:
//
//	guard := fence.Table{}
//	err := guard.Do(ctx, db, "account:42", token, func(tx *sql.Tx) error {
//		// read and write with tx
//	})
//
// If the data is in Redis or Valkey, use [Redis.Open]. If it is in this process, use [Memory.Do]. If it is behind a
// service of yours, use [HTTP] there, or [Admit] for other protocols, and [Transport] in its clients; then also one of
// the others in the service's own storage, for a reason given at [HTTP]. For a store of another kind implement [Store],
// or read on.
//
// # Enter, then read, then write
//
// A holder announces its token on its first access, and that access is usually a read. A guard that looks at writes
// only, as most pictures of fencing show it, has a hole:
//
//	holder 33 reads 100, and is paused
//	holder 34 reads 100                       the guard has not seen 34 yet
//	holder 33 wakes up and writes 110         … and so accepts 33
//	holder 34 writes 120                      33's acknowledged update is lost
//
// Measured with faultless tokens and five nodes of which three restart each second, writes-only lost as many updates as
// no guard at all, 18 of 100; with the token announced before the first read, none. So every guard here has Enter,
// which announces and compares in one step, and whatever writes enters by itself: Do has entered before it calls you,
// and the methods of [Access] exist only once Open has entered. All that is left to you is not to read before that, or
// elsewhere.
//
// The announcement has to outlive the reading. In SQL it counts when its transaction commits, so a read that ends in a
// rollback, as a deferred tx.Rollback alone makes it, has announced nothing.
//
// # Equal tokens
//
// A token equal to the largest is accepted. Tokens are unique, so it is the same holder's next access. That is not
// checked: if you give a token away, or make up your own, two holders pass for one. A holder's own accesses are not
// ordered by its token; its threads, retries and duplicated requests are its own affair.
//
// # Readers
//
// Where the lock is a read-write lock, a writer enters as above, and a reader by EnterShared (DoShared, OpenShared,
// AdmitShared). A reader is refused if its token is smaller than the largest writer's, and a writer if its token is
// smaller than any: readers, whose tokens are in no order, do not refuse each other. A token that entered as a reader's
// must not be entered as a writer's. Enter is safe for readers as well, but refuses some that it need not. Clients of a
// version without EnterShared can use the same guards meanwhile, in any order.
//
// # What is promised
//
// Once Enter has returned nil for a token at a resource, no access with a smaller token begins there any more, and those
// that had begun inside the guard (in Do, in a transaction that had entered, in a Redis script) have ended, so that
// what is read from then on is what there is. If every access is guarded like this, no acknowledged update of one holder
// is overwritten by another that had not seen it, however long anybody was paused, whatever became of the lock.
//
// A refusal is a *StaleError with both tokens, found by errors.Is(err, [ErrStale]). It is final: the lock is lost, what
// was read under it must be thrown away, and a new acquisition brings a new token. Any other error means that the
// access did not take place, unless it says otherwise, as for a commit whose reply was lost.
//
// # What is not promised
//
//   - A guard that forgets lets an old holder in. Memory forgets when the process ends, a database when it is restored
//     from a backup, Redis when a failover or restart loses its last writes or an eviction policy chooses the guard.
//     Forget is there for resources that are gone for good; [Memory.Prune] and [Redis].Keep bound what is kept without
//     letting anybody in.
//   - [HTTP] and [Admit] compare before the handler runs, not in one step with what it writes.
//   - Nothing read from a replica is guarded, nor what goes around the guard.
//   - A token is believed. A client that sends 2^53 − 1 shuts out all others, so guards belong behind authentication.
//   - Fencing orders holders; it does not undo. Half of a change that a holder made before it was overtaken stays, unless
//     a transaction held it together.
//
// # Tokens
//
// A token is a uint64 from 1 to [MaxToken], 2^53 − 1, which Lua scripts, JSON and double-precision columns hold exactly.
// Guards take the tokens of any source whose numbers grow with each holder of a lock, such as etcd's revisions.
package fence
