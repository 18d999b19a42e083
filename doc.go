// Package redlatch implements distributed locks on Redis and Valkey, so that two machines do not do
// the same thing at once.
//
// # Usage
//
// Open a client for the servers, and run what must not run twice under Do:
//
//	client, err := redlatch.Open(redlatch.Config{Nodes: []string{"redis://10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379"}})
//	...
//	err = client.Do(ctx, "invoice/42", func(ctx context.Context) error {
//		return charge(ctx, 42) // ctx is done when the lock is lost
//	})
//
// With one node, a lock is a lock on one Redis or Valkey. With three, five or more independent
// masters, it is Redlock (Redis documentation, "Distributed locks with Redis"): a lock is held when
// a majority of all configured nodes has granted it, so any minority of them may be down, hung or
// slow.
//
// Lock and TryLock return a *Lock, for work that cannot be wrapped in a function. The client
// renews a lock in the background until it is released, or for MaxHold at most. TryDo runs a
// function only if the lock is free, for a job that one of several machines is to do. With
// WithMinHold the lock is kept long enough to cover the difference between the machines' clocks.
//
// Campaign runs a function for as long as it leads, without MaxHold, and again after the lead was
// lost. Observe reports who holds a lock, and each change of holder; ObservePermits does the same
// for permits. Held returns the lock that a ctx carries.
//
// # What is promised
//
// Mutual exclusion: at any instant the validity of at most one holder is running. The validity is the
// time for which a holder may rely on its lock. The promise holds as long as the clocks of clients
// and nodes advance at rates within 1 % of each other, and no node's wall clock is stepped forward
// by more than the drift, which is 1 % of the TTL and 2 ms. Servers expire keys by their wall clock,
// so a step ends a lock early on that server.
//
// Fencing: a later holder's token is larger than an earlier holder's, even if a step, a pause or a
// partition has broken exclusion (Lock.Token says what that rests on). A resource stays correct if,
// from its first access on, it refuses every token that is smaller than one it has seen. Package
// fence has such guards.
//
// A holder knows when its lock is lost: Lock.Context ends before the holder's keys can expire on the
// nodes that last granted or extended the lock. It goes by the local clock and does not depend on
// the network.
//
// No deadlock: others can take the lock of a crashed holder when its TTL has run out. Nothing is
// left behind: a try that failed or was cancelled leaves no key on a node that can be reached.
//
// # Waiting
//
// Lock waits in a queue. The callers of one client get the lock in the order of their calls, and
// clients get it in the order in which they joined the queue. One node, which the name determines,
// keeps the queue, and wakes up the first client when the lock is released; nobody polls. Only
// fairness depends on that node. When it fails, the queue forms anew on the next one. When a
// message is lost, or the holder dies or uses another library, the first client tries again when
// the server notifies it that the key has changed, or when the key can have expired. A client that
// dies or hangs loses its place in the queue within seconds.
//
// Inside one client the lock passes from caller to caller in one step on the nodes, a few times in
// a row while other clients wait. No step is needed if the callers want the lock for the same TTL
// and under the same label, one soon after the other: up to eight of them then hold the lock in
// turn by the attempt of the first, under its holder id. Each has a token of its own. The validity
// of such a caller is shorter than that of an attempt of its own, by the drift at most. Between
// clients, the next holder replaces the keys of the last one. WithoutQueue retries at random times
// instead, as the Redlock paper does.
//
// # Several names
//
// LockAll acquires several names or none of them, as one lock with one token. Callers that need the
// same names in different orders therefore do not wait for each other for ever. WithAlso does the
// same for TryLock, Do and TryDo. Callers that want one name do not starve a caller that waits for
// several: if it loses turn after turn, it takes the names one by one, and others wait behind it
// meanwhile.
//
// # Readers
//
// RLock acquires a lock as a reader. Any number of readers hold a lock together, but not beside a
// writer, which is a caller of Lock. WithShared does the same for TryLock, Do and TryDo. Neither
// side starves: while a writer waits, readers that arrive wait behind it, and readers that wait
// when the writer leaves go in together.
//
// # Permits
//
// Acquire takes one of k permits of a name, for work that k holders may do at once. WithPermits
// does the same for TryLock, Do and TryDo. Each permit is a slot from 0 to k-1, which one holder
// has at a time, as it would a lock: Lock.Slot may stand for a port or a shard, and tokens grow for
// each slot. A permit is not the lock of that name: neither excludes the other.
//
// # What is not promised
//
// A lock cannot stop a process that a garbage collector, a hypervisor or SIGSTOP pauses after it
// has checked the lock and before it writes. If running twice corrupts something, check the token
// where the data is written.
//
// A replicated Redis may promote a replica that lacks the last writes: see "Replicated servers".
//
// # Replicated servers
//
// A master with replicas, a master that Sentinels watch and a whole Redis Cluster are one node each
// (Config.Nodes). A master's vote counts only while a majority of the configured Sentinels name it.
// A holder that is cut off together with a former master and a minority of the Sentinels therefore
// renews for 3 s at most, and loses its lock a TTL later. The vote of a Cluster's master counts
// while a majority of all masters of the Cluster say that it has the slot. What a failover does to
// a lock depends on which server was promoted:
//
//   - With the quarantine, which is on by default, a promoted server votes for nobody until the
//     locks that it may have missed have run out, or somebody vouches for it. There are no two
//     holders, and no locks for MaxTTL and 4 s; a lock that is held is not extended, and ends.
//   - A Cluster's slot that was moved with its keys votes on at its new master. A slot that was
//     given away without its keys votes after MaxTTL and 4 s.
//   - With Config.Replicas, a lock is held only when that many replicas have it. If the quarantine
//     is off, holders and waiters go on as long as one of these replicas is promoted. Redis and
//     Valkey do not promise that: they promote the replica that seems to have the most.
//   - With neither, a lock that the promoted replica had not received gets a second holder. Only
//     the tokens tell the two apart.
//
// # Quarantine
//
// A node that restarts without its keys would vote again for locks that it has already granted. It
// is kept out for longer than the longest TTL: for MaxTTL and 4 s. The servers themselves enforce
// this. The same goes for a node that was promoted, and for one whose keys were deleted. MaxTTL is
// 24 h at most. A new server cannot be told from one that has just restarted; an operator who knows
// that it is new says so with Admit, or with the command redlatch admit.
//
// Each node records what the clients of its deployment agreed on: the nodes, MaxTTL, NoQuarantine
// and Durable. A client with other settings changes nothing there and gets no vote: its error wraps
// ErrInvalid and has both values. Reset, or the command redlatch deployment set, changes the
// record; then the node does not vote for the longer of the old and the new quarantine. Open,
// oneshot.Client.Inspect and doctor.Examine write nothing; the first attempt to lock has the nodes
// admitted. A node that has no record is judged by the records of a majority of the nodes; if a
// majority has none, the client's settings are believed.
//
// Each request for a vote names the run and the replication id of the server that was examined. A
// master that was a replica in between is therefore detected even if its process and its
// connections stayed alive. The present settings of a server do not show whether it has always kept
// every write on disk. Config.Durable is your word that it has, which saves the quarantine after a
// restart.
//
// The quarantine needs Redis 7.0 or Valkey 7.2. docs/restarts.md in the repository says what
// restarts, failovers and changes cost in each topology, and what the operator vouches for.
//
// # Rights
//
// The user of a node's URL needs these rights (Redis documentation, "ACL"), with the names of your
// locks in place of job/*:
//
//	~job/* ~redlatch:* &redlatch:wake:*
//	+eval +evalsha +info +ping +time +get +mget +set +psetex +del +pttl +pexpire
//	+zadd +zrem +zrange +zrank +zscore +publish +subscribe
//	+client|tracking +client|caching +client|id +client|kill
//
// Only a client of one node needs the last two. Beside these, Config.Replicas needs +wait, and
// +waitaof for Fsync; a URL with a database number needs +select; a Cluster needs +cluster,
// +asking, +spublish and +ssubscribe, and neither +publish nor +subscribe; Waiters, Readers and
// Permits need +getrange; List needs +scan and +getrange; package oneshot with CommandsWatch needs
// +watch, +multi and +exec; with CommandsNative it releases by DELEX (+delex, Redis 8.4) or DELIFEQ
// (+delifeq, Valkey 9.0) where the server has it and permits it, else by SET. Package doctor tells
// more with +config|get, +acl|whoami and +type.
//
// # Other packages
//
// Package redlatchtest locks in memory, for the tests of programs that take a Locker.
//
// Package oneshot takes and releases locks one call at a time, for programs that keep a lock's id
// themselves, across processes; Lock.Detach turns a held lock into such a lock. Package doctor
// examines the nodes and says whether they are fit for locks. Package fence has guards that check
// tokens. Package goredis locks over go-redis clients. Packages zookeeper and etcd keep the same
// locks in an ensemble of ZooKeeper and in a cluster of etcd. Package otel makes metrics and spans
// of locks.
//
// # Other lockers
//
// A lock is a plain string under its own name, set with a TTL, whose value belongs to one holder.
// The locks of redsync, node-redlock, redis-py, StackExchange.Redis and others look the same: on
// the same servers, they exclude the locks of this library and are excluded by them. Holders of
// such locks have no token. Package legacy works beside the older SETNX locks.
package redlatch
