package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hashslot"
)

// clusterConn is a driver.Conn to a Cluster, with a connection to each of its servers. It follows MOVED and ASK.
type clusterConn struct {
	*driver.Ordered
	machine *Machine
	conns   []*Conn
	life    context.Context
	end     context.CancelFunc
	asking  sync.WaitGroup

	mu sync.Mutex // guards what follows; nothing is called while it is held
	// owners has which of conns leads to the master of each part, as far as is known; nil before that.
	owners     []int
	refreshing bool
}

// DialCluster returns a connection to the world's Cluster.
func (m *Machine) DialCluster() driver.Conn {
	c := &clusterConn{machine: m}
	c.life, c.end = context.WithCancel(context.Background())
	for i := range m.world.nodes {
		c.conns = append(c.conns, m.Dial(i).(*Conn))
	}
	c.Ordered = driver.NewOrdered(c.call)
	return c
}

// Close implements driver.Conn.
func (c *clusterConn) Close() {
	c.end()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.Ordered.Close()
	c.asking.Wait()
}

var errNoTable = errors.New("sim: no server says which master has which slots")

// maxRedirections bounds how often one command is sent on.
const maxRedirections = 8

// call implements driver.Call.
func (c *clusterConn) call(ctx context.Context, args []string) (driver.Reply, error) {
	at := driver.FirstKey(args)
	if at == 0 {
		return c.anywhere(ctx, args)
	}
	part := partOf(hashslot.Of(hashslot.Tag(args[at])))
	to, ok := c.owner(ctx, part)
	if !ok {
		return driver.Reply{}, driver.NotSent(errNoTable)
	}
	command := args
	for range maxRedirections {
		reply, err := c.conns[to].Do(c.life, command...)
		refusal, refused := errors.AsType[*driver.ServerError](err)
		switch {
		case err == nil || refused && !refusal.Redirects():
			return reply, err
		case !refused:
			c.refresh()
			return reply, err
		}
		words := strings.Fields(refusal.Text)
		to, command = c.index(words[2]), args
		if words[0] == "ASK" {
			command = append([]string{"ASKING"}, args...)
			continue
		}
		c.mu.Lock()
		c.owners[part] = to
		c.mu.Unlock()
	}
	return driver.Reply{}, driver.NotSent(errors.New("sim: sent on too often"))
}

// index is which of conns leads to the server of that name.
func (c *clusterConn) index(name string) int {
	return slices.IndexFunc(c.conns, func(conn *Conn) bool { return conn.node.Name == name })
}

// anywhere sends a command that any server may answer.
func (c *clusterConn) anywhere(ctx context.Context, args []string) (reply driver.Reply, err error) {
	first := int(c.machine.Draw(time.Duration(len(c.conns))))
	for i := range c.conns {
		one, cancel := context.WithTimeout(ctx, time.Second)
		reply, err = c.conns[(first+i)%len(c.conns)].Do(one, args...)
		cancel()
		if _, refused := errors.AsType[*driver.ServerError](err); err == nil || refused || ctx.Err() != nil {
			break
		}
	}
	return reply, err
}

// owner returns which of conns leads to the master of the part.
func (c *clusterConn) owner(ctx context.Context, part int) (i int, ok bool) {
	c.mu.Lock()
	owners := c.owners
	c.mu.Unlock()
	if owners == nil {
		if owners = c.ask(ctx); owners == nil {
			return 0, false
		}
		c.set(owners)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owners[part], true
}

// refresh asks anew which master has which slots, unless that is under way.
func (c *clusterConn) refresh() {
	c.mu.Lock()
	under := c.refreshing
	c.refreshing = true
	c.mu.Unlock()
	if under || c.life.Err() != nil {
		return
	}
	c.asking.Go(func() {
		owners := c.ask(c.life)
		c.mu.Lock()
		c.refreshing = false
		c.mu.Unlock()
		if owners != nil {
			c.set(owners)
		}
	})
}

func (c *clusterConn) set(owners []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owners = owners
}

// ask asks any server which master has which slots.
func (c *clusterConn) ask(ctx context.Context) (owners []int) {
	reply, err := c.anywhere(ctx, []string{"CLUSTER", "SLOTS"})
	if err != nil {
		return nil
	}
	for _, owner := range reply.Array {
		owners = append(owners, int(owner.Int))
	}
	return owners
}
