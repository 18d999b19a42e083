// Package sim is a world for the real client code to live in: servers, machines
// and a network that fail by a seed, in virtual time.
//
// A [World] lives in one testing/synctest bubble, whose time is the true time
// of the world. Each [Machine] has clocks of its own over it, which run at
// another rate, step, and stand still, and each [Node] has a wall clock. A
// machine's connections ([Conn]) carry commands to nodes and replies back with
// delays drawn from the seed, and break. A node's server (package server) runs the
// scripts of package script as they are. [Weather] brings faults. A [Judge] watches
// the holders and says what was broken.
//
// # Beyond what is promised
//
// Some of what comes is more than the library promises to bear (docs/design.md). The judge knows:
//
//   - A node's wall clock stepped by more than the drift ([Outlaw]): keys expire early, so that two
//     may hold. Tokens are ordered all the same.
//   - A lock's key deleted from outside: a vote is gone on which its holder rests. Who held it then is
//     not judged against who comes after.
//   - A lock's counters overwritten from outside: no node knows any more what was given. Tokens
//     begin anew. The nodes refuse while they have what no client can have written.
//   - An operator who vouches for a node that loses its data before the word arrives: what it had
//     does not count any more. One who vouches earlier tells the truth.
//   - A client of another library that gets a node's vote during its quarantine, of which it knows
//     nothing: it is not judged as a holder.
//   - A client with other settings that comes first where most nodes have forgotten the deployment:
//     it is its deployment then, until an operator changes that.
//   - A release that a node was sent and did not execute for a second, and then could not for want of its
//     script: who sent it has gone, and what it was to release has its TTL.
//   - A replica promoted, a node restarted, a role changed: nobody is blamed for what is slow or
//     refused while it lasts, and for as long as a quarantine and the places in the queue need.
//
// # Executed twice
//
// A step for one of several slots is executed twice in a row now and then, as if somebody on the way had
// sent it again. No other command is.
//
// # Standing still
//
// A process is stopped, and a goroutine of it stands still where it goes through a connection, a
// timer or a message. TestSimStalls builds the library anew, with a call before each statement, so
// that a goroutine stands still between any two, also with a mutex held. No line of the library is
// there for that. In silent worlds they do so most often when a grant has just been heard.
//
// In replaced worlds a whole host stands still, with a master and a client on it. A replica takes the
// master's place meanwhile, and the old one, which nobody has told, answers what it was sent before.
// The clocks of the two are as far apart as tokens bear, for which the quarantine is needed as a whole:
// nobody vouches for a node there.
//
// # A change
//
// In worlds of changes an operator sets another MaxTTL or Durable, on one node after the other, and the
// programs are started anew with it, sooner or later (TestSimChanges). Nodes forget before a change, and change
// their roles after it. Within the quarantine of a change none forgets its record, and fewer than half ever do: that is beyond what
// is promised (docs/restarts.md, "What there is only your word for").
//
// # A Cluster
//
// A [Cluster] has worlds of its own (TestSimCluster), in which machines reach it as one node. Its servers hang,
// crash, are cut off from each other, flushed and replaced by replicas that lag; its slots are moved key by key, or
// given away without their keys. The processes of its clients stand still, are killed, end and are started anew. Half of what
// happens to a server does so between two looks at it, or between a look and what was decided on it (interruption.go). What is
// beyond what is promised does not happen there:
//
//   - The move of a slot is not ended before all its keys are at one master. One that comes to no end is given up when all
//     locks have run out that may be on either side.
//   - A replica takes over by an election, of which those who elect it know at once.
//   - No operator vouches for anything.
//
// Some of what a Cluster does is not simulated there, and some of what is judged elsewhere is not there:
//
//   - Nobody hears a message: the connection subscribes to nothing, and the servers have no SPUBLISH. Who waits
//     tries again by the clock.
//   - No server refuses a command for being cut off from the others.
//   - That a lock is lost is not compared with what the servers have, nor how long somebody waits with what is free, nor what a step
//     does to a reader's time, which may be by the clock of another server.
//
// # Replay
//
// A seed leads to the same history each time, to the nanosecond. All that is drawn is drawn from it, in a
// stream of its own for each machine, connection and purpose. What several goroutines do in one moment
// happens in the order in which they became ready: worlds run one after the other in processes with one
// processor, and a Go runtime that leaves nothing to chance (serial_test.go). Where they do not, as
// under the race detector, moments that are drawn to the nanosecond have hardly two events of a world
// coincide.
//
// # Mutations
//
// A [Mutation] breaks one rule of the lock, in the text of a script, the connections
// or the clocks, without a change to the code under test. A judge that finds
// nothing then is of no use.
package sim
