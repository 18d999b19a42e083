package redlatch

import (
	"errors"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redisconn"
)

// endpoint is one of Config.Nodes, parsed.
type endpoint struct {
	name    string
	options redisconn.Options
	// attached connects to a node that has no URL.
	attached func() driver.Conn
	cluster  bool
	store    func(changed func(key string)) hook.Store
	// lone: this is the only node. With several nodes a caller waits for other goroutines anyway,
	// and a direct connection would gain nothing.
	lone bool
}

func (e endpoint) dial() (driver.Conn, error) {
	if e.attached != nil {
		return e.attached(), nil
	}
	if e.cluster {
		return redisconn.NewCluster(e.options), nil
	}
	conn, err := redisconn.New(e.options)
	if err != nil {
		return nil, err
	}
	if e.lone {
		return redisconn.NewDirect(conn), nil
	}
	return conn, nil
}

// member connects to one server of the Cluster at e.
func (e endpoint) member(address string) (driver.Conn, error) {
	o := e.options
	o.Cluster, o.Address, o.More = false, address, nil
	return redisconn.New(o)
}

// endpoints parses Config.Nodes.
func (c Config) endpoints() ([]endpoint, error) {
	if len(c.attached) > 0 {
		return attachedEndpoints(c.attached)
	}
	if len(c.Nodes) == 0 {
		return nil, invalid("Config.Nodes names no node: give at least one URL, such as redis://127.0.0.1:6379")
	}
	seen := make(map[string]int)
	endpoints := make([]endpoint, 0, len(c.Nodes))
	for i, raw := range c.Nodes {
		options, name, err := redisconn.Parse(strings.TrimSpace(raw))
		if err != nil {
			return nil, invalid("Config.Nodes[%d]: %w", i, err)
		}
		if err := options.Secure(c.TLS); err != nil {
			return nil, invalid("Config.Nodes[%d]: %w", i, err)
		}
		options.ConnectTimeout = connectTimeout(c.NodeTimeout)
		for _, key := range []string{name, options.Place()} {
			if first, ok := seen[key]; ok && first != i {
				return nil, invalid("Config.Nodes[%d], %s, and Config.Nodes[%d], %s, are one server or have one name, and would vote twice: name each server once, with a name of its own", first, endpoints[first].name, i, name)
			}
			seen[key] = i
		}
		endpoints = append(endpoints, endpoint{name: name, options: options, cluster: options.Cluster, lone: len(c.Nodes) == 1})
	}
	return endpoints, nil
}

func attachedEndpoints(nodes []hook.Node) ([]endpoint, error) {
	endpoints := make([]endpoint, len(nodes))
	first := make(map[string]int)
	for i, n := range nodes {
		if j, ok := first[n.Name]; ok {
			return nil, invalid("nodes %d and %d are both called %s: name each server once, with a name of its own", j, i, n.Name)
		}
		first[n.Name] = i
		endpoints[i] = endpoint{name: n.Name, attached: n.Dial, cluster: n.Cluster, store: n.Store}
	}
	return endpoints, nil
}

// connectTimeout is the time for a connection's several round trips.
func connectTimeout(nodeTimeout time.Duration) time.Duration {
	return max(time.Second, 10*nodeTimeout)
}

// ofNode returns r as a node needs it, without the connection for it.
func (r Replicas) ofNode() node.Replicas {
	return node.Replicas{Want: r.Count, Fsync: r.Fsync, Limit: r.Timeout}
}

// replicas returns which acknowledgements the votes of the node at e need, with the connection that
// waits for them.
func (c Config) replicas(conn driver.Conn, e endpoint, dial func(endpoint) (driver.Conn, error)) (node.Replicas, error) {
	r := c.Replicas.ofNode()
	if !e.cluster { // a Cluster has connections enough
		second, err := dial(e)
		if err != nil {
			return r, err
		}
		conn = second
	}
	batcher, ok := conn.(driver.Batcher)
	if !ok {
		if !e.cluster {
			conn.Close()
		}
		return r, errors.New("this connection cannot wait for replicas: leave Config.Replicas out")
	}
	r.Conn = batcher
	return r, nil
}

// censusOf returns the census of the nodes at endpoints.
func censusOf(endpoints []endpoint) *node.Census {
	names := make([]string, len(endpoints))
	for i, e := range endpoints {
		names[i] = e.name
	}
	return node.NewCensus(names)
}

// nodeOptions returns the options of the i-th node, at e.
func (c Config) nodeOptions(i int, e endpoint, census *node.Census) node.Options {
	return node.Options{
		Name:   e.name,
		Index:  i,
		Census: census,
		Agreement: admission.Agreement{
			Deployment:   c.Deployment,
			Nodes:        census.Names(),
			MaxTTL:       c.MaxTTL,
			NoQuarantine: c.NoQuarantine,
			Durable:      c.Durable,
		},
		Strict:         c.Strict,
		ConnectTimeout: connectTimeout(c.NodeTimeout),
		Patience:       c.NodeTimeout,
		Logger:         c.Logger,
	}
}
