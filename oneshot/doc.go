// Package oneshot takes, extends and releases locks one call at a time, for programs that keep a
// lock's id themselves, across processes. Nothing is renewed, nobody is told when a lock is
// lost, and there is no fencing token. It is for code that was written for the LockTake, LockExtend,
// LockRelease and LockQuery of StackExchange.Redis, and for programs that end between taking
// and releasing a lock; all others should use [redlatch.Client.Lock].
//
//	client, err := redlatch.Open(redlatch.Config{Nodes: nodes})
//	...
//	shots := oneshot.New(client)
//	id := rand.Text()
//	taken, err := shots.Take(ctx, "invoice/42", id, 10*time.Second)
//	...
//	released, err := shots.Release(ctx, "invoice/42", id) // in another process, maybe
//
// These locks and those of [redlatch.Client.Lock] exclude each other. [redlatch.Lock.Detach] turns
// one of the latter into a lock that this package extends and releases. That also works in
// ZooKeeper and etcd. Take is refused there, because they have no locks under an id of the caller's
// choice.
//
// # Commands
//
// A call sends one of the following to a node, by what the node supports or as [Config]
// says:
//
//	                extend       release              seen on
//	scripts         script       script               Redis 7.0, Valkey 8.0, 8.1, 9.1
//	native          SET IFEQ     DELEX IFEQ           Redis 7.0, translated into scripts on the way
//	native          SET IFEQ     DELIFEQ              Valkey 9.1; elsewhere translated
//	native          SET IFEQ     SET IFEQ PX 1        Valkey 8.1; elsewhere translated
//	transactions    WATCH        WATCH                Redis 7.0, Valkey 8.0, 8.1, 9.1
//
// The tests run on Redis 7.0 and Valkey 8.0; on Valkey 8.1 and 9.1 they were run once. DELEX came
// with Redis 8.4, on which it was not tested. Only scripts can tell whether a node is admitted, so
// the other commands need NoQuarantine. They do not raise the counter of fencing tokens, and a
// release by them wakes nobody up: waiting clients learn of it when the server tells them that the
// key has changed, or by a timer.
package oneshot
