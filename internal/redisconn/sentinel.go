package redisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
)

// sentinelPause is the time between two looks at where the master is.
const sentinelPause = time.Second

// sentinels know where a master is.
type sentinels struct {
	master string
	conns  []*Conn
}

// newSentinels prepares connections to the Sentinels that o names.
func newSentinels(o Options) (*sentinels, error) {
	s := &sentinels{master: o.Master}
	for _, address := range o.addresses() {
		conn, err := New(Options{
			Network: o.Network, Address: address,
			Username: o.SentinelUsername, Password: o.SentinelPassword,
			TLS: o.TLS, ConnectTimeout: o.ConnectTimeout,
		})
		if err != nil {
			s.close()
			return nil, err
		}
		s.conns = append(s.conns, conn)
	}
	return s, nil
}

func (s *sentinels) close() {
	for _, conn := range s.conns {
		conn.Close()
	}
}

// find asks all Sentinels at once where the master is, and returns what most of
// them say, or of those that have answered when ctx is done. One that was cut
// off together with a former master would name that still.
func (s *sentinels) find(ctx context.Context) (address string, err error) {
	type said struct {
		address string
		err     error
	}
	answers := make(chan said, len(s.conns))
	for _, conn := range s.conns {
		go func() {
			address, err := conn.masterAddress(ctx, s.master)
			answers <- said{address, err}
		}()
	}
	votes := make(map[string]int)
	var errs []error
	for range s.conns {
		a := <-answers // each ends with ctx
		if a.err != nil {
			errs = append(errs, a.err)
			continue
		}
		votes[a.address]++
		if votes[a.address] > len(s.conns)/2 {
			return a.address, nil
		}
	}
	most := 0
	for candidate, n := range votes {
		if n > most || n == most && cmp.Less(candidate, address) {
			most, address = n, candidate
		}
	}
	if most == 0 {
		return "", fmt.Errorf("no Sentinel knows where %q is: %w", s.master, errors.Join(errs...))
	}
	return address, nil
}

func (c *Conn) masterAddress(ctx context.Context, master string) (string, error) {
	reply, err := c.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", master)
	if err != nil {
		return "", fmt.Errorf("%s: %w", c.options.Address, err)
	}
	if len(reply.Array) != 2 {
		return "", fmt.Errorf("%s watches no master of that name", c.options.Address)
	}
	address := net.JoinHostPort(reply.Array[0].Text, reply.Array[1].Text)
	if !isAddress(address) {
		return "", fmt.Errorf("%s names a master at %q, which is no address", c.options.Address, address)
	}
	return address, nil
}

// follow breaks the connection when the Sentinels name another master than the
// one it leads to, which may live on, and go on answering, where they cannot see
// it. It ends with Close.
func (c *Conn) follow(patience time.Duration) {
	tick := time.NewTicker(sentinelPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.life.Done():
			return
		}
		ctx, cancel := context.WithTimeout(c.life, patience)
		address, err := c.sentinels.find(ctx)
		cancel()
		if err == nil {
			c.leave(func(current string) bool { return current != address })
		}
	}
}

// leave breaks the connection if there is one, and to an address that is unwanted.
func (c *Conn) leave(unwanted func(address string) bool) {
	c.mu.Lock()
	present := slices.Clone(c.present)
	c.mu.Unlock()
	for _, w := range present {
		if unwanted(w.address) {
			w.Close()
		}
	}
}

// Seek implements driver.Seeker.
func (c *Conn) Seek() bool {
	if c.sentinels == nil {
		return false
	}
	c.leave(func(string) bool { return true })
	return true
}

var _ driver.Seeker = (*Conn)(nil)
