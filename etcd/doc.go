// Package etcd holds the locks of redlatch in a cluster of etcd, where a majority of the members
// has each lock on disk before it is granted:
//
//	client, err := etcd.Open(redlatch.Config{TTL: 10 * time.Second}, theirs) // a *clientv3.Client
//
// The client is a *redlatch.Client. Lock, TryLock, Do, TryDo, renewal and everything else about a
// lock are the same code.
//
// # What is promised
//
// Mutual exclusion: at any instant at most one holder's validity is running, as long as clocks
// advance at rates within 1 % of each other. No server's wall clock matters, and no server that
// restarts is kept out: there is no quarantine.
//
// A holder knows: its validity runs from the moment when it sent the last write that a majority has
// committed, by its own monotonic clock. That an etcd lease is kept alive is no sign of a lock.
//
// Fencing: a later holder's token is larger than an earlier one's. It is made of the revision of
// the transaction that granted the lock, and of a base that is stored under the Prefix when that is
// made. The base is the wall clock at that time plus ten years. For so long it is larger than the
// tokens of Redis, which go with the clock and which the same resource may have seen. Tokens stay
// below 2^53 for 8·10^14 revisions.
//
// No deadlock: a waiter takes the lock over after it has seen for a TTL that the holder has not
// extended it. A TryLock that has not seen the holder before gets a crashed holder's lock when that
// holder's etcd lease has ended. That lasts for twice MaxTTL and two seconds, and longer if a
// leader was elected meanwhile.
//
// Order: clients wait in the order in which they joined the queue. Each is woken up by the one
// before it, and asks every second and a half whether it still has its place. In an
// outage the order may suffer.
//
// Nothing is left behind: what a failed attempt may have left is deleted when a member can be
// reached, or ends with the etcd lease. If an answer is lost, the client finds out by the holder's
// id what was done, before it sends anything again.
//
// # What is not
//
// A paused process does not notice. Let the resource check the token.
//
// A majority of the cluster must be running. While it elects a leader, nothing is granted or
// extended; a TTL of 10 s outlasts most elections.
//
// An etcd lease must outlast the TTL of what it keeps. The client makes sure of that: it writes
// nothing under one that might end too soon, and counts a renewal only when no leader was elected
// meanwhile. It relies on a leader that does not stand still for longer than MaxTTL and then goes
// on: some servers, 3.4.23 among them, then end leases that were renewed with the next leader.
//
// An operator who revokes the etcd lease of a client, or deletes keys of a lock, takes the lock away at once.
// The holder finds it lost at its next renewal, after a third of its TTL, and another may hold it
// until then, with a larger token.
//
// If the servers refuse a release, as when rights were taken away, the lock ends with the etcd lease: the client renews
// that no more, makes another, and puts its other locks under it when it extends them.
//
// Tokens begin anew, by the clock, if somebody deletes the Prefix or wipes the cluster. Close all
// clients before that. A cluster that is restored from a backup has forgotten the later locks and
// tokens: close all clients before that, too, and delete the Prefix and all that begins with it and
// a slash when it is restored. Then tokens are larger than before again.
//
// Endpoints of two clusters are refused with redlatch.ErrInvalid as soon as both have answered this
// client, which takes some of its heartbeats at most; before that, a lock may have a holder in each.
// The same is done to a client that is open when another cluster takes the place of the one that it
// had.
//
// A waiter whose process dies holds up those behind it for half a second after they notice it, and
// holds up single tries until its etcd lease has ended.
//
// A client has 128 attempts and looks under way at most, so that what it holds is extended in time however many of
// its callers try at once. Others wait for half a second and are then not sent ("too many requests are under way"):
// Lock tries again, and TryLock returns redlatch.ErrNoQuorum.
//
// Each lock is renewed by a request of its own, every third of its TTL. A client with more locks than the servers can extend
// in that time loses locks, and is not refused more of them with redlatch.ErrOverloaded.
//
// # Settings
//
// The settings of redlatch.Config that have a meaning only with Redis are refused, with the reason:
// Nodes, NodeTimeout, Replicas, Deployment, NoQuarantine, Durable and Strict. A step has a second.
// Client.Admit, Client.Reset and the Take of package oneshot are refused, too. Clients with
// different MaxTTLs may share locks. The Client's Close ends the etcd lease, and with it what is
// held. But if a lock's WithMinHold is not over, or a lock was detached, it stays until the etcd
// lease has ended by itself.
//
// # Detached locks
//
// Lock.Detach leaves a lock to the program that has its id. If nobody extends it, waiters get it
// after its TTL. So do single tries while the client that detached it lives; after that they get it
// when the etcd lease has ended. Through package oneshot any client can extend the lock, and so
// puts it under its own etcd lease: then the TTL counts from there, and neither the end of the
// first client nor of its etcd lease ends the lock. This succeeds as long as nobody else has taken
// the lock, even after its TTL; MaxTTL must be as long as the lock's TTL. The id of a lock that is
// renewed extends it as well; the holder takes it back under its own etcd lease at its next
// renewal. If somebody releases such a lock by its id, the holder finds it lost at its next
// renewal.
//
// # In the cluster
//
// A client has one etcd lease, and each lock has some keys under the Prefix while it is held or
// waited for. When an attempt is given up, or sent again because an answer was lost, a small key of
// that lock remains until that client is closed: because of it, anything of the attempt that is
// still on its way to the servers fails. Tested with servers of version 3.4.23.
package etcd
