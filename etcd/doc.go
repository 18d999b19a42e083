// Package etcd holds the locks of redlatch in a cluster of etcd, where a majority of the members
// has each lock on disk before it is granted:
//
//	client, err := etcd.Open(redlatch.Config{TTL: 10 * time.Second}, theirs) // a *clientv3.Client
//
// The client is a *redlatch.Client, and Lock, TryLock, Do, TryDo, renewal and what else there is
// of a lock are the same code.
//
// # What is promised
//
// Mutual exclusion: at any instant at most one holder's validity is running, as long as clocks
// advance at rates within 1 % of each other. No server's wall clock matters, and no server that
// restarts is kept out: there is no quarantine.
//
// A holder knows: its validity runs from when its last write was sent that a majority has
// committed, by its own monotonic clock. That an etcd lease is kept alive is no sign of a lock.
//
// Fencing: a later holder's token is larger than an earlier one's. It is made of the revision of
// the transaction that granted the lock, and of a base that is stored under the Prefix when that is
// made: the wall clock of then, and an hour, so that it is larger than the tokens of Redis that the
// same resource may have seen. Tokens stay below 2^53 for 8·10^14 revisions.
//
// No deadlock: who waits takes the lock over when it has seen for a TTL that the holder has
// not extended it. A TryLock that has not seen the holder before gets the lock of one that crashed
// when its etcd lease has ended, which lasts for twice MaxTTL and two seconds, and longer where a
// leader was elected meanwhile.
//
// Order: clients wait in the order in which they joined the queue, each is woken up by the one
// before it, and nobody polls.
//
// Nothing is left behind: what an attempt may have left that failed is deleted when a member
// can be reached, or ends with the etcd lease. Where an answer is lost it is found out by the holder's
// id what was done, before anything is sent again.
//
// # What is not
//
// A paused process does not notice. Let the resource check the token.
//
// A majority of the cluster must be there. While it elects a leader, nothing is granted or
// extended; a TTL of 10 s outlasts most elections.
//
// An etcd lease is to outlast the TTL of what it keeps. The client makes sure of that: it writes
// nothing under one that might end too soon, and counts a renewal only when no leader was
// elected meanwhile. It relies on a leader that does not stand still for longer than MaxTTL and then
// goes on: some servers, 3.4.23 among them, then end leases that were renewed at the next leader.
//
// Tokens begin anew, by the clock, if somebody deletes the Prefix or wipes the cluster. Close all
// clients before. A cluster that is restored from a backup has forgotten what came after it, locks and tokens.
//
// A waiter whose process dies holds up those behind it for half a second after they notice it,
// and single tries until its etcd lease has ended.
//
// # Settings
//
// Of redlatch.Config, what only has a meaning with Redis is refused with the reason: Nodes,
// NodeTimeout, Replicas, Deployment, NoQuarantine, Durable and Strict. A step has a second.
// Client.Admit, Client.Reset and the Take of package oneshot are refused, too. Clients with another MaxTTL
// may share locks. The Client's Close ends the etcd lease, and with it what is held; a lock whose WithMinHold
// is not over, or which was detached, stays until the etcd lease has ended by itself.
//
// # Detached locks
//
// Lock.Detach leaves a lock to the program that has its id. Where nobody extends it, those who wait have it after
// its TTL, and so have single tries while its client lives; after that, when the etcd lease has ended. By
// package oneshot any client extends it, and so puts it under its own etcd lease: then the TTL counts from
// there, and neither the end of the first client nor its etcd lease ends the lock. This succeeds as long as
// nobody else has taken it, also after its TTL; MaxTTL must be as long as that of the lock. The id of a lock that
// is renewed extends it as well, and its holder takes it back under its own etcd lease when it renews it next.
// Who releases by the id a lock that is renewed has its holder find it lost at its next renewal.
//
// # In the cluster
//
// A client has one etcd lease, and each lock some keys under the Prefix while it is held or waited for.
// A small key remains of each lock of which an attempt was given up, until the client that did so is
// closed: by it, what of the attempt is still on its way to the servers comes to nothing.
// Tested with servers of version 3.4.23.
package etcd
