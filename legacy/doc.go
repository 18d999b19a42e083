// Package legacy speaks the oldest lock protocol of Redis, for programs that
// have to live beside such lockers while moving off them: "SETNX lock.foo
// <current Unix time + lock timeout + 1>", with an expired lock taken over by
// GETSET (Redis documentation, SETNX, "Design pattern: Locking with SETNX").
// New code has no use for it: see package redlatch.
//
// # Why it is discouraged
//
// The time at which a lock ends is in its value. It is by the clock of the client that wrote the
// value, and is compared with the clock of the client that reads it. All clocks must be
// synchronised to well below a second; a client whose clock is ahead takes locks that are held.
//
// Whoever tries to take over an expired lock overwrites the value, even when it loses. A lock whose
// holder asked for a minute may then end after the loser's five seconds, so all lockers must use
// one timeout. And the holder can no longer tell its own value from another's, so a release cannot
// be conditional: it is a plain DEL, sent only while the lock has not expired. A DEL that is
// delayed on its way until the lock has expired and passed to another holder takes the lock from
// that holder. So does a loser's value, or an extension, that comes so late that its time is past: the
// next one to look takes the lock over.
//
// All lockers must write times. A number that others write as a mark, such as 1, is a time that is
// past, and their lock is taken over; what is no number is left alone.
//
// Keys have no expiry, and every client that crashes leaves them behind. There is one server, no
// fencing token, and waiting is polling.
//
// # Moving off it
//
//  1. While old lockers run, the new program takes the lock both ways, with Both.
//  2. When no old locker is left, it takes it with redlatch alone. Programs that
//     still use Both exclude it all the same.
package legacy
