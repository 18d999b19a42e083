// Package goredis runs Redlatch over clients of go-redis that a program already
// has: for one server, for a master that Sentinels watch, and for a Cluster.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379"})
//	client, err := goredis.Open(redlatch.Config{}, rdb)
//
// Everything else is as in package redlatch.
//
// # What is weaker
//
// [redlatch.Open] keeps one connection to each server, on which commands cannot overtake each
// other. A go-redis client has a pool of connections, so:
//
//   - A command waits until the command before it on the same lock is answered or given up by
//     the client (Options.ReadTimeout). If the server hangs for longer than that, a try that
//     was given up may still be executed after its own removal, when the server goes on. Its
//     key is then in the way of others for a TTL. It is nobody's lock.
//   - Nobody is told of a connection that broke. A restart, a failover or another server behind
//     the address shows when the next step there is refused, because each step asks for the
//     server that was admitted.
//   - If an address leads to a new master, as a name in DNS does after a failover, while the former
//     master stays up as a replica, calls fail, or wait, for as long as the pool's connections to
//     that stand: Options.ConnMaxLifetime ends them.
//   - Wake-ups come by one more connection to each server, which is made when somebody first
//     waits. While it is being made, or is broken, the first in the queue looks every 30 ms. It
//     also does so where the client has no Subscribe, as a [Processor] may have none; where the
//     user may not SUBSCRIBE or PUBSUB NUMSUB; and always in a Cluster. If the connection
//     hangs, or leads to another server than the commands, it takes 6 s to see that; until then
//     a waiter looks every 1.5 s.
//   - Nobody is told when another library releases the lock: the first in the queue looks every
//     30 ms.
//   - Every command takes a connection of the pool while it is under way. With many callers,
//     make the pool large (Options.PoolSize): callers that find no connection wait.
//   - Each of many callers has a command of its own for each step.
//   - What a broken server sends is for go-redis to judge; [redlatch.Open] checks each reply
//     before it is believed.
//   - If a Cluster's master dies for good, the locks of its slots cannot be had until go-redis
//     asks who has those slots now: after ClusterOptions.ClusterStateReloadInterval, which is
//     60 s where it is not set.
//   - A Cluster's replicas cannot be waited for: Config.Replicas is refused with a
//     *redis.ClusterClient.
//   - List, Waiters and Permits of the client are ErrInvalid: call those of package redlatch, with
//     the servers' URLs. Package doctor needs the URLs, too.
//
// go-redis sends a command again when its reply was lost. This package forbids
// that on each of its own, whatever Options.MaxRetries says: a lock that was
// acquired twice by one command is nobody's. A caller's ctx ends the caller's
// wait and never the command, whatever Options.ContextTimeoutEnabled says.
package goredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/redisconn"
)

// Processor is what this package needs of a client. *redis.Client has it, which
// redis.NewFailoverClient also returns, and so has *redis.ClusterClient.
type Processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// pipeliner is a Processor that sends several commands on one connection.
type pipeliner interface {
	Processor
	Pipeline() redis.Pipeliner
}

// clusterClient is a *redis.ClusterClient, or a type that embeds one.
type clusterClient interface {
	Processor
	Options() *redis.ClusterOptions
}

// Open is [redlatch.Open] over clients, each of which leads to one node: a server, a master that
// Sentinels watch, or a whole Cluster. The clients are used as they are. Client.Close does not
// close them, but waits for what is under way on them: their ReadTimeout at most, and their
// DialTimeout where a connection is being made. Clients without a ReadTimeout (-1) make it wait for
// as long as a server hangs.
//
// Config.Nodes then has a name for each client in place of a URL; all clients of a deployment must
// call the node by that name. It may be left out for a client of one server, whose name is then its
// address. Config.TLS is not used.
//
// Where Sentinels watch the master, go-redis asks them, and believes the first that answers;
// redlatch.Open believes a majority of them. So with the quarantine on such a client is refused,
// unless [AnySentinel] accepts that. What redis.NewFailoverClusterClient returns does not lead to a
// Cluster, and gets no lock: use redis.NewFailoverClient.
//
// Open blocks as redlatch.Open does. The error wraps redlatch.ErrInvalid when
// the clients and the Config do not fit.
func Open(config redlatch.Config, clients ...Processor) (*redlatch.Client, error) {
	nodes, err := attachments(config, clients)
	if err != nil {
		return nil, fmt.Errorf("goredis: %w: %w", redlatch.ErrInvalid, err)
	}
	client, err := hook.Open(config, hook.Surroundings{Nodes: nodes})
	if err != nil {
		return nil, err
	}
	return client.(*redlatch.Client), nil
}

// AnySentinel accepts what Open refuses, with the quarantine on, in a client that
// redis.NewFailoverClient returned: it believes the first Sentinel that answers, and not a majority
// of them. A holder that is cut off together with the former master and one Sentinel then goes on
// with that master, while the other Sentinels promote a replica, and a lock has two holders for as
// long as that lasts. Other clients are returned as they are.
func AnySentinel(client *redis.Client) Processor {
	if client == nil || client.Options().Addr != failoverAddr {
		return client
	}
	return anySentinel{client}
}

type anySentinel struct{ *redis.Client }

// failoverAddr is what go-redis calls the address of a failover client.
const failoverAddr = "FailoverClient"

var errAnySentinel = errors.New("a failover client believes the first Sentinel that answers, so that a lock may have two holders while the Sentinels are parted: " +
	"use redlatch.Open with redis://SENTINEL?addr=SENTINEL&master_set=NAME, or accept it with goredis.AnySentinel(client) or Config.NoQuarantine")

// believesAny reports whether client is a failover client that AnySentinel has not accepted, or a type
// that embeds one.
func believesAny(client Processor) bool {
	_, accepted := client.(anySentinel)
	c, ok := client.(interface{ Options() *redis.Options })
	return ok && !accepted && c.Options().Addr == failoverAddr
}

func attachments(config redlatch.Config, clients []Processor) ([]hook.Node, error) {
	if len(clients) == 0 {
		return nil, errors.New("no client given: give one for each node")
	}
	if n := len(config.Nodes); n != 0 && n != len(clients) {
		return nil, fmt.Errorf("Config.Nodes has %d names for %d clients: give one for each, or none", n, len(clients))
	}
	nodes := make([]hook.Node, len(clients))
	for i, client := range clients {
		for j, other := range clients[:i] {
			if same(client, other) {
				return nil, fmt.Errorf("clients %d and %d are one, which would vote twice", j, i)
			}
		}
		node, err := attachment(client)
		if err != nil {
			return nil, fmt.Errorf("client %d: %w", i, err)
		}
		if len(config.Nodes) > 0 {
			node.Name = config.Nodes[i]
		}
		if redisconn.CheckName(node.Name) != nil || strings.Contains(node.Name, "://") {
			// The name is not repeated: a URL would have a password.
			return nil, fmt.Errorf("client %d needs a name of up to 256 printable characters, without spaces and without @ # ? & =, and not a URL: write it in Config.Nodes[%d]", i, i)
		}
		if believesAny(client) && !config.NoQuarantine {
			return nil, fmt.Errorf("client %d: %w", i, errAnySentinel)
		}
		nodes[i] = node
	}
	return nodes, nil
}

// same reports whether two clients are the same one. Clients of some types cannot be compared.
func same(a, b Processor) bool {
	a, b = plain(a), plain(b)
	return a != nil && reflect.TypeOf(a).Comparable() && a == b
}

// plain returns the client that AnySentinel has wrapped, or client itself.
func plain(client Processor) Processor {
	if accepted, ok := client.(anySentinel); ok {
		return accepted.Client
	}
	return client
}

func attachment(client Processor) (hook.Node, error) {
	client = plain(client)
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return hook.Node{}, errors.New("it is nil")
	}
	switch c := client.(type) {
	case interface{ Options() *redis.RingOptions }: // a type of the program's may embed a client
		return hook.Node{}, errors.New("a Ring is several servers that know nothing of each other: give each server's client")
	case redis.Pipeliner: // also a transaction's; it keeps what it is given until the program sends that
		return hook.Node{}, errors.New("a Pipeline only collects commands: give the client that it is of")
	case clusterClient:
		if c.Options().ReadOnly {
			return hook.Node{}, errors.New("ClusterOptions.ReadOnly sends commands to replicas, which never vote")
		}
		return hook.Node{Cluster: true, Dial: func() driver.Conn { return newConn(c) }}, nil
	case *redis.Client:
		o := c.Options()
		name := o.Addr
		if o.DB != 0 {
			name += "/" + strconv.Itoa(o.DB)
		}
		if _, _, err := net.SplitHostPort(o.Addr); err != nil {
			name = "" // it is the same for all failover clients
		}
		return hook.Node{Name: name, Dial: func() driver.Conn { return newListenConn(c) }}, nil
	case subscriber:
		return hook.Node{Dial: func() driver.Conn { return newListenConn(c) }}, nil
	case pipeliner:
		return hook.Node{Dial: func() driver.Conn { return newBatchConn(c) }}, nil
	default:
		return hook.Node{Dial: func() driver.Conn { return newConn(c) }}, nil
	}
}
