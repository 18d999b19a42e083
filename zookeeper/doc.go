// Package zookeeper holds the locks of redlatch in an ensemble of Apache ZooKeeper, where a
// majority of the servers has each lock on disk before it is granted:
//
//	client, err := zookeeper.Open(redlatch.Config{TTL: 10 * time.Second}, "zk1:2181", "zk2:2181", "zk3:2181")
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
// committed, by its own monotonic clock. That its server answers, and that the client library has a
// session, is no sign of a lock: a follower that is cut off from its leader goes on answering for a
// while.
//
// Fencing: a later holder's token is larger than an earlier one's. It is made of the number of the
// transaction that granted the lock, and of a base that is stored with the Root when that is made.
// The base is the wall clock at that time plus ten years. For so long it is larger than the tokens
// of Redis, which go with the clock and which the same resource may have seen. Tokens stay below
// 2^53 for some 200,000 elections of a leader.
//
// No deadlock: a waiter takes the lock over after it has seen for a TTL that the holder has not
// extended it. A TryLock that has not seen the holder before gets a crashed holder's lock when that
// holder's session has ended, after twice MaxTTL and a tick of the servers at the latest.
//
// Order: clients wait in the order in which they joined the queue. Each is woken up by the one
// before it, and asks every second and a half whether it still has its place. In an
// outage the order may suffer. A lock that is in use without a pause for 2^31 nodes, which is some
// 700 million holders who waited, has no order from then on, until its container has been deleted.
//
// Nothing is left behind: what a failed attempt may have left is deleted when a server can be
// reached, or ends with the session. If an answer is lost, the client finds out by the holder's id
// what was done, before it sends anything again.
//
// # What is not
//
// A paused process does not notice. Let the resource check the token.
//
// A majority of the ensemble must be running. While it elects a leader, which takes seconds,
// nothing is granted or extended; a TTL of 10 s outlasts most elections.
//
// A session must outlast the TTL of what it keeps. The client makes sure of that: it writes nothing
// on a session that the leader might end too soon, such as right after a pause of its own. It
// relies on a leader that asks its followers twice a tick whom they have heard. A leader that stood
// still for about a third of the session's time, and then goes on, might end a session while a
// lease of it runs; the servers depose such a leader before that if syncLimit times tickTime is
// less than that third.
//
// Tokens begin anew, by the clock, if somebody deletes the Root or wipes the ensemble. Close all
// clients before that: those that are open when the Root is deleted are granted nothing any more.
// An ensemble that is restored from a backup has forgotten the later locks and tokens: close all
// clients before that, too, and delete the Root when it is restored. Then tokens are larger than
// before again, if the Root was older than ten hours for each election that was forgotten.
//
// Servers do not say of which ensemble they are. If those of two are named as if they were one, each
// client locks in the one that it is connected to, and a lock may have a holder in each. [Examine]
// tells, and no client does, except one that comes from one ensemble to the other: it is granted
// nothing there.
//
// If the servers refuse a release, as when rights were taken away, waiters get the lock after its TTL once they have those
// rights, and single tries that have not seen it before when the client that held it is closed or its session has ended.
//
// A waiter whose process dies holds up those behind it for half a second after they notice it, and
// holds up single tries until its session has ended.
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
// different MaxTTLs may share locks. The Client's Close ends the session, and with it what is held.
// But a lock whose WithMinHold is not over, or which was detached, stays until the session would
// have ended.
//
// # Detached locks
//
// Lock.Detach leaves a lock to the program that has its id. If nobody extends it, waiters get it
// after its TTL. So do single tries while the client that detached it lives; after that they get it
// when the session has ended. Through package oneshot any client can extend the lock, and so makes
// it part of its own session: then the TTL counts from there, and neither the end of the first
// client nor of its session ends the lock. This succeeds as long as nobody else has taken the lock,
// even after its TTL; MaxTTL must be as long as the lock's TTL. The id of a lock that is renewed
// extends it as well; the holder takes it back to its own session at its next renewal. If somebody
// releases such a lock by its id, the holder finds it lost at its next renewal.
//
// # In the ensemble
//
// Each lock has a container node under the Root, named after its key. The servers, from version 3.5
// on, delete it after it has been empty for a while. One more node marks the Root. Tested with
// version 3.8, over github.com/go-zookeeper/zk. A client keeps one connection. Servers with
// localSessionsEnabled need localSessionsUpgradingEnabled, too.
package zookeeper
