// Package redlatchtest provides locks in memory, for the tests of programs that lock: without a
// server or a network, and in virtual time if the test wants that.
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
// errors and the wait queue are the library's own, and the node must execute the same steps as
// servers. The same suite of tests runs on it and on real servers.
//
// The methods Lose, HoldByAnother, Cut and Delay make happen at once what usually happens to a
// program only when something breaks. Peer is a second machine.
//
// Each New has a node of its own, so tests that run in parallel share nothing.
//
// # Virtual time
//
// Inside testing/synctest a client lives in the time of the bubble, in which it must be opened: a
// TTL of ten seconds runs out at once when every goroutine waits. Nothing in it blocks on anything
// outside the bubble, and no goroutine of it is left when the test's cleanups are done.
//
// # What it is not
//
// It has one node, so what takes several cannot be seen: a minority that fails, or votes that
// split. It never restarts, is never kept out by a quarantine and has no replicas. It does not
// speak Redis: a program that reads keys itself, package doctor, and List, Waiters, Readers and
// Permits need a server. The guide docs/guides/testing.md in the repository has those other ways.
package redlatchtest
