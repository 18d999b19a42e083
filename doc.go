// Package redlatch holds distributed locks on Redis and Valkey, so that two
// machines do not do the same thing at once.
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
// With one node it is a lock on one Redis or Valkey. With three, five or more
// independent masters it is Redlock (Redis documentation, "Distributed locks
// with Redis"): a lock is held when a majority of all configured nodes granted
// it, so any minority of them may be down, hung or slow. Lock and TryLock return
// a handle, for work that cannot be wrapped in a function. A lock is renewed in the
// background until it is released, or for MaxHold at most. TryDo runs a function only if
// the lock is free, for a job that one of several machines is to do; WithMinHold keeps
// the lock long enough for machines whose clocks differ.
//
// Campaign runs a function for as long as it leads, without MaxHold, and again after a
// loss; Observe tells others who holds a lock, and of each change, and ObservePermits the same
// of permits. Held has the lock that a ctx carries.
//
// # What is promised
//
// Mutual exclusion: at any instant at most one holder's validity is running, as
// long as the clocks of clients and nodes advance at rates within 1 % of each
// other and no node's wall clock is stepped forward by more than the drift, 1 %
// of the TTL and 2 ms. Servers expire keys by their wall clock: a step lets a
// lock go early.
//
// Fencing: a later holder's token is larger than an earlier one's, also when
// exclusion is broken by a step, a pause or a partition. A resource that
// refuses a smaller token than it has seen, from its first access on, stays
// correct. Package fence has such guards.
//
// A holder knows: Lock.Context ends before the holder's keys can expire anywhere. It
// goes by the local clock and does not depend on the network.
//
// No deadlock: what a crashed holder held can be taken when its TTL has run out.
// Nothing is left behind: a try that failed or was cancelled leaves no key on a
// node that can be reached.
//
// # Waiting
//
// Lock waits in a queue. Callers of one client get the lock in the order of their calls,
// and clients in the order in which they joined the queue. One node, which the name
// determines, keeps the queue and wakes up the first client when the lock is released;
// nobody polls. Only fairness depends on that node. When it fails, the queue forms anew
// on the next one. When a message is lost, or the holder dies or uses another library,
// the first client tries again at a notice from the server that the key has changed, or
// when the key can have expired. A client that dies or hangs loses its ticket within seconds.
//
// Inside one client the lock passes from caller to caller in one step on the nodes, a few
// times in a row while other clients wait. If callers want it for the same TTL and under
// the same label, one soon after the other, no step is needed: up to eight of them hold
// the lock in turn by the attempt of the first, under its holder id. Each has a token of
// its own. Its validity is shorter than that of an attempt of its own by the drift at
// most. From client to client, the next holder replaces the keys of the last one.
// WithoutQueue retries at random times instead, as the Redlock paper does.
//
// # Several names
//
// LockAll acquires several names or none of them, as one lock with one token, so that those who
// need the same things in another order do not wait for each other for ever. WithAlso makes
// TryLock, Do and TryDo the same. Who waits for them is not starved by those who want one: where it
// loses turn after turn it takes the names one by one, and others wait behind it meanwhile.
//
// # Readers
//
// RLock acquires a lock together with others who do, and not beside one who has it by Lock: readers and a
// writer. WithShared makes TryLock, Do and TryDo the same. Neither side starves: while a writer waits,
// readers who come wait behind it, and those who wait when it leaves go in together.
//
// # Permits
//
// Acquire takes one of k permits of a name, for what k may do at once, and WithPermits makes
// TryLock, Do and TryDo the same. Each permit is a slot from 0 to k-1, which one holder at a time
// has, as a lock: Lock.Slot may name a port or a shard, and tokens grow for each slot. A permit
// is not the lock of that name: neither excludes the other.
//
// # What is not
//
// A lock cannot stop a process that a garbage collector, a hypervisor or SIGSTOP pauses
// after it has checked the lock and before it writes. If running twice corrupts
// something, check the token where the data is written.
//
// A replicated Redis promotes replicas that may lack the last writes: see below.
//
// # Replicated servers
//
// A master with replicas, one that Sentinels watch and a whole Redis Cluster are
// one node each (Config.Nodes). A master counts only while a majority of the
// Sentinels that are configured name it: a holder who is cut off together with a
// former master and a minority of them renews for 3 s at most, and has lost its lock
// a TTL later. A Cluster's master counts while a majority of all its masters says that
// it has the slot. What a failover does to a lock depends on who was promoted:
//
//   - With the quarantine, which is on by default, a promoted server votes for
//     nobody until the locks that it may have missed have run out, or somebody
//     vouches for it. There are no two holders, and no locks for MaxTTL and 4 s;
//     the one that is held is not extended, and ends.
//   - A slot of a Cluster that was moved with its keys votes on at its new master. One
//     that was given away without them votes after MaxTTL and 4 s.
//   - With Config.Replicas, a lock is held only when that many replicas have it. As
//     long as one of these is promoted, and the quarantine is off, holders and
//     waiters go on. Redis and Valkey do not promise that: the servers promote
//     whoever seems to have most.
//   - With neither, a lock that the promoted replica had not received gets a second
//     holder. Only their tokens tell them apart.
//
// # Quarantine
//
// A node that restarts without its keys would vote again for locks that it gave
// away. It is kept out for longer than the longest TTL: for MaxTTL and 4 s. The
// servers themselves enforce this. The same goes for a node that was promoted, and
// for one whose keys were deleted. MaxTTL is 24 h at most. A new server cannot be told
// from one that has just restarted; an operator who knows that it is new says so with
// Admit, or with the command redlatch admit.
//
// Each node records what the clients of its deployment agreed on: the nodes,
// MaxTTL, NoQuarantine and Durable. A client with other settings changes nothing there
// and gets no vote: its error wraps ErrInvalid and has both values. Reset, or the
// command redlatch deployment set, changes them; then the node does not vote for the
// longer of the old and the new quarantine. Open, oneshot.Client.Inspect and
// doctor.Examine write nothing; the first attempt to lock has the nodes admitted. A node
// that has no record is judged by the records of a majority of the nodes; if a majority
// has none, the client's settings are believed.
//
// Each request for a vote names the run and the replication id of the server that was
// examined, so that a master that was a replica in between is detected even if its
// process and its connections stayed alive. Whether a server has always kept every write
// on disk cannot be seen from its present settings: Config.Durable is your word for it,
// which saves the quarantine after a restart.
//
// The quarantine needs Redis 7.0 or Valkey 7.2. docs/restarts.md in the repository says what
// restarts, failovers and changes cost in each topology, and what the operator vouches for.
//
// # Rights
//
// The user of a node's URL needs these (Redis documentation, "ACL"), with the names of the locks in
// place of job/*:
//
//	~job/* ~redlatch:* &redlatch:wake:*
//	+eval +evalsha +info +ping +time +get +mget +set +psetex +del +pttl +pexpire
//	+zadd +zrem +zrange +zrank +zscore +publish +subscribe
//	+client|tracking +client|caching +client|id +client|kill
//
// The last two are for one node alone. Beside these, Config.Replicas needs +wait, or +waitaof for
// Fsync; a URL with a database number, +select; a Cluster, +cluster, +asking, +spublish and +ssubscribe, and neither
// +publish nor +subscribe; List and Waiters, +scan and +getrange; package oneshot with CommandsWatch, +watch, +unwatch, +multi and +exec.
// Package doctor tells more with +config|get, +acl|whoami and +type.
//
// # Other packages
//
// Package redlatchtest locks in memory, for the tests of programs that take a Locker.
//
// Package oneshot takes and releases locks one call at a time, for programs that keep a lock's id
// themselves, across processes; Lock.Detach makes such a lock of one that is held. Package doctor looks at
// the nodes and says whether they are fit for locks. Package fence has guards that check
// tokens, package goredis locks over go-redis clients, package zookeeper keeps the same locks
// in an ensemble of ZooKeeper, package etcd in a cluster of etcd, package otel metrics and spans of locks.
//
// # Other lockers
//
// A lock is a plain string under its own name, set with a TTL, whose value is
// one holder's: what redsync, node-redlock, redis-py, StackExchange.Redis and
// others use. They exclude this library and are excluded by it, on the same
// servers. Holders of such locks have no token. Package legacy works beside the
// older SETNX locks.
package redlatch
