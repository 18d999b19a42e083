// Package redlatchtest locks in memory, for the tests of programs that lock: no server, no
// network, and in virtual time if the test wants that.
//
//	func TestInvoicesAreChargedOnce(t *testing.T) {
//		locks := redlatchtest.New(t, redlatch.Config{})
//		s := NewService(locks) // which takes a redlatch.Locker
//		release := locks.HoldByAnother("invoice/42")
//		if err := s.Charge(t.Context(), 42); !errors.Is(err, redlatch.ErrHeld) {
//			t.Errorf("charged while another does: %v", err)
//		}
//		release()
//		...
//	}
//
// # What it is
//
// A Client is a *redlatch.Client whose one node is in memory. Locks, contexts, renewal, tokens,
// errors and the wait queue are the library's own, and the node is held to the steps that
// servers execute. The same suite of tests runs on it and on real servers.
//
// The methods of Client have what usually happens to a program only when something breaks happen
// now: Lose, HoldByAnother, Cut, Delay. Peer is a second machine.
//
// Each New has a node of its own, so tests that run in parallel share nothing.
//
// # Virtual time
//
// Inside testing/synctest a client lives in the time of the bubble, in which it must be opened:
// a TTL of ten seconds runs out at once when every goroutine waits. Nothing in it blocks on what
// is outside the bubble, and it has no goroutine left when the test's cleanups are done.
//
// # What it is not
//
// It has one node, so what takes several is not seen: a minority that fails, votes that split.
// It never restarts, is never kept out by a quarantine and has no replicas. It does not speak
// Redis: a program that reads keys itself, package doctor and redlatch.List need a server. The
// guide docs/guides/testing.md in the repository has these other ways.
package redlatchtest
