// Package oneshot takes, extends and releases locks one call at a time, for those who keep a
// lock's id themselves, across processes: nothing is renewed, nobody is told of a loss, and
// there is no fencing token. It is for code that was written for the LockTake, LockExtend,
// LockRelease and LockQuery of StackExchange.Redis, and for programs that end between taking
// and releasing; all others are better off with [redlatch.Client.Lock].
//
//	client, err := redlatch.Open(redlatch.Config{Nodes: nodes})
//	...
//	shots := oneshot.New(client)
//	id := rand.Text()
//	taken, err := shots.Take(ctx, "invoice/42", id, 10*time.Second)
//	...
//	released, err := shots.Release(ctx, "invoice/42", id) // in another process, maybe
//
// They are the locks of [redlatch.Client.Lock]: each excludes the other, and
// [redlatch.Lock.Detach] hands one of those over to whoever keeps its id.
//
// # Commands
//
// On a node the steps are made of one of the following, by what it turns out to be able to do
// or as [Config] says:
//
//	                extend       release              tested on
//	scripts         script       script               Redis 7.0, Valkey 8.0, 8.1, 9.1
//	native          SET IFEQ     DELEX IFEQ           Redis 7.0, translated into scripts on the way
//	native          SET IFEQ     DELIFEQ              Valkey 9.1; elsewhere translated
//	native          SET IFEQ     SET IFEQ PX 1        Valkey 8.1; elsewhere translated
//	transactions    WATCH        WATCH                Redis 7.0, Valkey 8.0, 8.1, 9.1
//
// DELEX came with Redis 8.4, which was not at hand. Scripts alone can tell whether a node is
// admitted, so that the others need NoQuarantine. They raise no counter of fencing tokens, and
// a release by them wakes nobody up: who waits learns of it from the server's notice of the
// changed key, or by its timer.
package oneshot
