package redisconn

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/driver"
)

// These say how long a connection stands without a majority of the Sentinels behind it. They are
// asked every sentinelPause, for sentinelLimit at most. The connection is closed when failedChecks
// in a row had no majority: within 3 s of the last check that had one. No command is sent on it
// after masterStands, even if the process is so starved that no check was made.
//
// The quarantine keeps a promoted server out for MaxTTL and 4 s. A client that is cut off together
// with the former master, when that is replaced or earlier, renews for 3 s at most after that, so
// no validity there lasts longer than MaxTTL and 3 s.
const (
	sentinelPause = time.Second
	sentinelLimit = time.Second
	failedChecks  = 2
	masterStands  = 3 * time.Second
)

// sentinels know where a master is.
type sentinels struct {
	master string
	conns  []*Conn

	mu sync.Mutex // guards what follows; nothing is called while it is held
	// confirmed is when those Sentinels were asked that last named a master by majority, and named
	// is its address; the zero Instant before any did.
	confirmed clock.Instant
	named     string
	// failures counts the checks since then, and failure is the error of the last one.
	failures int
	failure  error
}

// newSentinels prepares connections to the Sentinels that o names.
func newSentinels(o Options) (*sentinels, error) {
	s := &sentinels{master: o.Master}
	for _, address := range o.Addresses() {
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

// close ends the connections. Nobody needs an answer any more, and a Sentinel that hangs gives none.
func (s *sentinels) close() {
	for _, conn := range s.conns {
		conn.Cut()
		conn.Close()
	}
}

// find asks all Sentinels at once where the master is, and returns the address that a majority of
// the configured ones name. The error is a *noMajorityError when there is no majority, or when ctx
// is done first. A single Sentinel that was cut off together with a former master would still name
// that one.
func (s *sentinels) find(ctx context.Context) (address string, err error) {
	type answer struct {
		i int
		view
	}
	asked := clock.System.Now()
	answers := make(chan answer, len(s.conns))
	views := make([]view, len(s.conns))
	for i, conn := range s.conns {
		views[i] = view{sentinel: conn.options.Address, err: errNoAnswer}
		go func() { // ends with close, too
			// A Sentinel that is slower than a majority gets the time to connect: else it would begin anew
			// at each check, and be missed when another fails.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), conn.options.ConnectTimeout)
			defer cancel()
			answers <- answer{i, conn.view(ctx, s.master)}
		}()
	}
	for range s.conns {
		select {
		case a := <-answers:
			views[a.i] = a.view
		case <-ctx.Done():
			return "", &noMajorityError{s.master, views}
		}
		// rule: majority-of-sentinels
		if address, ok := majority(views); ok {
			s.confirm(asked, address)
			return address, nil
		}
	}
	return "", &noMajorityError{s.master, views}
}

// confirm takes in that a majority named the master at address when asked at that time.
func (s *sentinels) confirm(asked clock.Instant, address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.confirmed == (clock.Instant{}) || asked.Since(s.confirmed) > 0 {
		s.confirmed, s.named, s.failures, s.failure = asked, address, 0, nil
	}
}

// replaced returns an error if the Sentinels have named another master since they named the one at address.
func (s *sentinels) replaced(address string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.named == address {
		return nil
	}
	return fmt.Errorf("the Sentinels named another master, at %s, while a connection to %s was being made", s.named, address)
}

// fail takes in that a check had no majority, and reports whether that is one too many.
func (s *sentinels) fail(err error) (giveUp bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures++
	s.failure = err
	return s.failures >= failedChecks
}

// recent returns an error unless the Sentinels named a master not long ago, or have not been asked
// yet.
func (s *sentinels) recent() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.failures >= failedChecks:
		return s.failure
	case s.confirmed == (clock.Instant{}):
		return nil
	}
	age := clock.System.Now().Since(s.confirmed)
	if age <= masterStands {
		return nil
	}
	if s.failure != nil {
		return s.failure
	}
	return fmt.Errorf("the Sentinels were last asked for the master %q %v ago", s.master, age.Round(time.Millisecond))
}

// view asks the Sentinel at the other end where the master is.
func (c *Conn) view(ctx context.Context, master string) view {
	v := view{sentinel: c.options.Address}
	replies, errs := c.Batch(ctx, []string{"SENTINEL", "GET-MASTER-ADDR-BY-NAME", master}, []string{"SENTINEL", "MYID"})
	if errs[1] == nil && replies[1].Kind == driver.Text { // Redis 6.2 and later
		v.id = replies[1].Text
	}
	if v.err = errs[0]; v.err != nil {
		return v
	}
	pair := replies[0].Array
	if len(pair) != 2 {
		v.err = &unknownMasterError{"it watches no master of that name"}
		return v
	}
	v.address = net.JoinHostPort(pair[0].Text, pair[1].Text)
	if !isAddress(v.address) {
		v.err = &unknownMasterError{fmt.Sprintf("it names a master at %q, which is no address", v.address)}
	}
	return v
}

// follow breaks the connection when the Sentinels name another master than the one it leads to, and
// when no majority of them names any. The former master may live on, and go on answering, where the
// Sentinels cannot see it. follow ends with Close.
func (c *Conn) follow() {
	tick := time.NewTicker(sentinelPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.life.Done():
			return
		}
		ctx, cancel := context.WithTimeout(c.life, sentinelLimit)
		address, err := c.sentinels.find(ctx)
		cancel()
		switch {
		case err == nil:
			c.leave(func(current string) bool { return current != address })
		case c.life.Err() == nil && c.sentinels.fail(err):
			c.leave(func(string) bool { return true })
		}
	}
}

// leave breaks the connections to addresses that are unwanted.
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
