// Package redistest is the ground that Redlatch's tests, its demo and its
// torture run stand on: real servers, and a network between them that fails on
// demand.
//
// # Server
//
// A [Server] is a redis-server or valkey-server process on a private loopback
// port with a directory of its own. It can be killed, restarted with or without
// its data, frozen, and have its wall clock stepped. Start one with [Start]
// anywhere, or with [New] and [Nodes] in a test, which stop it when the test
// ends. A missing server binary fails a test; it never skips one.
//
// Processes are signalled by pid and die with the process that started them,
// also when that is killed.
//
// # Cluster
//
// A [Cluster] is a Redis Cluster of masters and replicas. Its slots are moved key by
// key or given away without their keys, its replicas take their masters' places with
// and without the last writes, and it can be asked when all agree on that.
//
// # Proxy
//
// A [Proxy] stands in front of one server and delays, holds, loses or cuts what
// passes, for each direction alone and at any time. It understands enough of
// the protocol to act on one chosen command: see [Proxy.OnCommand].
//
//	server := redistest.New(t)
//	proxy := redistest.NewProxy(t, server.Addr())
//	proxy.OnCommand(func(c redistest.Command) redistest.Action {
//		if c.Name() == "EVALSHA" {
//			return redistest.CutAfter // executed, but nobody learns of it
//		}
//		return redistest.Pass
//	})
//
// # What it is not
//
// Loopback loses no packets and a killed process is not a power cut: what a
// server has written, the kernel still has. Nothing here is for production.
package redistest
