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
// # Replay
//
// All that is drawn is drawn from the seed, in a stream of its own for each
// machine, connection and purpose, and moments are drawn to the nanosecond, so
// that hardly two events of a world coincide and the order in which goroutines
// run within one moment changes nothing.
//
// # Mutations
//
// A [Mutation] breaks one rule of the lock, in the text of a script, the connections
// or the clocks, without a change to the code under test. A judge that finds
// nothing then is of no use.
package sim
