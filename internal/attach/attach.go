// Package attach lets the modules beside the library give it connections of
// their users' making. The library cannot be imported here, so its types go by
// any.
package attach

import "github.com/redlatch/redlatch/internal/driver"

// Node is a node that a client was brought for.
type Node struct {
	Name string
	// Dial returns a connection of the library's own over the client, which it
	// closes; the client it does not.
	Dial func() driver.Conn
	// Cluster: the client sends each command to the master that has its key.
	Cluster bool
}

// Open opens a *redlatch.Client for a redlatch.Config without URLs over nodes.
// Package redlatch sets it.
var Open func(config any, nodes []Node) (client any, err error)
