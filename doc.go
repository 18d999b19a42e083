// Package redlatch holds distributed locks on Redis and Valkey: so that two
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
// One node makes it a lock on one Redis or Valkey. Three, five or more
// independent masters make it Redlock (Redis documentation, "Distributed locks
// with Redis"): a lock is held when a majority of all configured nodes granted
// it, so any minority of them may be down, hung or slow. Lock and TryLock return
// a handle to those who cannot wrap their work in a function. A lock is renewed
// in the background until it is released, or for MaxHold at most. TryDo runs what another
// machine is not to do as well; with WithMinHold also not just after it.
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
// A holder knows: Lock.Context ends, by the local clock and with no word from
// the network, before its keys can expire anywhere.
//
// No deadlock: what a crashed holder held can be taken when its TTL has run out.
// Nothing is left behind: a try that failed or was cancelled leaves no key on a
// node that can be reached.
//
// # Waiting
//
// Lock waits in a wait queue: callers of one client in the order of their calls, and
// clients in that of theirs. One of the nodes, another for each name, keeps the
// queue, and wakes up whoever is first when the lock is released; nobody polls. Only
// fairness depends on that node. When it fails the queue forms anew on the next;
// where a message is lost, or a holder dies or belongs to another library, timers
// and the servers' own notices of changed keys make up for it. A client that dies
// or hangs loses its place within seconds.
//
// Inside one client a lock passes from caller to caller in one step on the nodes, a few
// times in a row while others wait. Callers who want it for the same TTL and under the
// same label, one soon after the other, pass it on in no step at all: up to eight hold it
// in turn by the attempt of the first, whose holder id the nodes have. Each has a token
// of its own, and a validity that is shorter by the drift at most than by a step of its
// own. From client to client, the next takes over what the last has left on the nodes.
// WithoutQueue chooses the paper's random delays instead.
//
// # What is not
//
// A lock in memory cannot stop a process that was paused between a look at its
// lock and its next write, by a garbage collector, a hypervisor or SIGSTOP. For
// work whose double execution corrupts something, check the token where the
// write lands.
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
//     that was given away without them votes when the same time is over.
//   - With Config.Replicas, a lock is held only when so many replicas have it. As
//     long as one of these is promoted, and the quarantine is off, holders and
//     waiters go on. Redis and Valkey do not promise that: the servers promote
//     whoever seems to have most.
//   - With neither, the lock has two holders when its replica had not heard of it,
//     and only the token tells.
//
// # Quarantine
//
// A node that restarts without its keys would vote again for locks that it gave
// away. It is kept out for longer than the longest TTL, MaxTTL and 4 s, by the
// servers themselves: so is one that was promoted, and one whose keys were
// deleted. MaxTTL is 24 h at most, and so is about that wait. A server that has
// just been set up is one that has just restarted, as far as anyone can tell;
// an operator who knows better says so with Admit, or with the command
// redlatch admit.
//
// Each node records what the clients of its deployment agreed on: the nodes,
// MaxTTL, NoQuarantine and Durable. A client that differs changes nothing there
// and gets no vote: its error wraps ErrInvalid and has both values. Reset, or the
// command redlatch deployment set, changes them, and begins the wait of the
// longer settings. Open writes nothing, and to look (oneshot.Client.Inspect, doctor.Examine) neither; the first lock
// that is asked for has the nodes admitted. A node that has no record of its own
// is judged by those of a majority; where there is none, by the client's word.
//
// Votes name the run and the replication id of the server that was examined, so a
// master that was a replica in between is found out even where its process and the
// connections lived on. Whether a server keeps its word on disk cannot be seen
// from its settings of today: Config.Durable is your word for it, which saves the
// wait after a restart.
//
// It needs Redis 7.0 or Valkey 7.2, and the right to use EVAL, EVALSHA and INFO, and
// CLUSTER in a Cluster.
// docs/restarts.md in the repository says what restarts, failovers and changes
// cost in each topology, and what there is only the operator's word for.
//
// # Other packages
//
// Package oneshot takes and releases locks one call at a time, for those who keep a lock's id
// themselves, across processes; Lock.Detach hands a lock over to them. Package doctor looks at
// the nodes and says whether they are fit for locks. Package fence has guards that check
// tokens, package goredis locks over go-redis clients.
//
// # Other lockers
//
// A lock is a plain string under its own name, set with a TTL, whose value is
// one holder's: what redsync, node-redlock, redis-py, StackExchange.Redis and
// others use. They exclude this library and are excluded by it, on the same
// servers. Holders of such locks have no token. Package legacy lives beside the
// older SETNX locks.
package redlatch
