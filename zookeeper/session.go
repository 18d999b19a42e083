package zookeeper

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/ensemble"
	"github.com/redlatch/redlatch/internal/quorum"
)

// session is this client's session with the ensemble, by one connection at a time. Its end deletes
// what the client has left. Only those who did not watch rely on that.
type session struct {
	// asked is how long the session must last at least.
	asked   time.Duration
	connect func(ctx context.Context, address string) (net.Conn, error)
	changed func(path string)
	prepare func() error

	conn *zk.Conn
	// ended is closed when the transport has ended.
	ended <-chan zk.Event
	// life ends when the client is closed.
	life context.Context
	end  context.CancelFunc
	// background is what Close waits for.
	background sync.WaitGroup
	// asks, releases and holds are for the requests under way: of those who hold nothing, of those who end
	// something, and of heartbeats and extensions. Neither of the first two keeps a held lock from being
	// extended.
	asks, releases, holds ensemble.Slots

	mu     sync.Mutex // guards what follows; nothing is called while it is held
	closed bool
	link   *link
	// undialled is why the last server that could not be dialled could not.
	undialled error
	// news is closed and replaced when one of the following has changed.
	news chan struct{}
	// connected: there is a connection with a session. prepared: the session was prepared once.
	// refusal is why it is not prepared yet, and unfit why it never will be.
	connected, prepared bool
	refusal, unfit      error
	touches             touches
	// last has, for each id with a request under way, the channel that is closed when the last of
	// these is over.
	last map[string]chan struct{}
}

const (
	// maxHolds bounds the extensions under way.
	maxHolds = 1024
	// heartbeats is how many heartbeats are sent while the session lasts.
	heartbeats = 16
)

var (
	errNotConnected = errors.New("no server is connected")
	errAbandoned    = errors.New("no answer yet")
)

// newSession begins to connect. changed is called with the path of a node that has changed, or with
// "" for all nodes, and must not block. prepare is called when there is a session, until it returns
// no error.
func newSession(asked time.Duration, e Ensemble, config *tls.Config, logger zk.Logger, changed func(path string), prepare func() error) *session {
	asked = (asked + time.Millisecond - 1).Truncate(time.Millisecond) // which servers count in
	s := &session{
		asked: asked, connect: e.dialer(config), changed: changed, prepare: prepare,
		asks: make(ensemble.Slots, ensemble.MaxInFlight), releases: make(ensemble.Slots, ensemble.MaxInFlight), holds: make(ensemble.Slots, maxHolds),
		news: make(chan struct{}), last: make(map[string]chan struct{}),
	}
	s.life, s.end = context.WithCancel(context.Background())
	// Only an empty list is an error.
	s.conn, s.ended, _ = zk.Connect(e.Servers, asked, zk.WithDialer(s.dial), zk.WithHostProvider(newHosts(e.Servers)),
		zk.WithLogger(logger), zk.WithLogInfo(false), zk.WithEventCallback(s.event))
	return s
}

// start begins to keep the session alive.
func (s *session) start() { s.run(s.attend) }

// patience returns how long a heartbeat or a handshake may take; after that another server is
// tried.
func (s *session) patience() time.Duration {
	return min(max(s.asked/heartbeats, 500*time.Millisecond), 5*time.Second)
}

// event is called by the transport, in order, and must not block.
func (s *session) event(e zk.Event) {
	if e.Type != zk.EventSession {
		s.changed(e.Path)
		return
	}
	if e.State == zk.StateHasSession {
		defer s.changed("") // nobody may have been told of what has changed meanwhile
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.State == zk.StateHasSession && !s.connected:
		now := clock.System.Now()
		lasts := s.link.sessionTimeout()
		if lasts < s.asked && s.unfit == nil {
			s.unfit = fmt.Errorf("Config.MaxTTL: the session must last for twice as long, %v, and the servers permit %v: raise maxSessionTimeout in their configuration, or lower MaxTTL and TTL", s.asked, lasts)
		}
		// The leader has taken part in the handshake.
		s.touches.add(touch{sent: s.link.begun, known: now}, lasts)
		s.connected = true
		s.announce()
	case e.State != zk.StateHasSession && s.connected:
		s.connected = false
		s.announce()
	}
}

// announce tells those who wait that something has changed. The caller holds s.mu.
func (s *session) announce() {
	close(s.news)
	s.news = make(chan struct{})
}

// attend keeps the session: it prepares it, sends heartbeats, and has another server tried when a
// majority does not answer one. It ends with the life of the client.
func (s *session) attend() {
	period := s.asked / heartbeats
	timer := time.NewTimer(0)
	defer timer.Stop()
	before := clock.System.Now()
	for {
		select {
		case <-timer.C:
		case <-s.life.Done():
			return
		}
		if !s.isPrepared() {
			s.tryToPrepare()
			timer.Reset(time.Second)
			before = clock.System.Now()
			continue
		}
		timer.Reset(period)
		now := clock.System.Now()
		if paused := now.Since(before) > 2*(period+s.patience()); paused || !s.heartbeat(now) {
			// The leader may be about to end the session: a handshake tells it.
			s.hangUp()
		}
		before = now
	}
}

// heartbeat asks the leader, through the server. It reports false when no answer came although
// there is a connection.
func (s *session) heartbeat(now clock.Instant) bool {
	if !s.isConnected() {
		return true
	}
	ctx, cancel := context.WithTimeout(s.life, s.patience())
	defer cancel()
	_, err := do(ctx, s, s.holds, "", func() (string, error) { return s.conn.Sync("/") })
	if err != nil {
		return !errors.Is(err, errAbandoned) && !errors.Is(err, ensemble.ErrBusy)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lasts := s.link.sessionTimeout()
	// A follower tells the leader twice a tick whom it has heard, and a session lasts for at least
	// two ticks. So that takes a quarter of the session's time, and some time on the way.
	s.touches.add(touch{sent: now, known: clock.System.Now().Add(lasts / 3)}, lasts)
	return true
}

// tryToPrepare waits for a session and prepares it.
func (s *session) tryToPrepare() {
	if !s.awaitState(s.life, func() bool { return s.connected }) {
		return
	}
	late := time.AfterFunc(5*time.Second, s.hangUp)
	err := s.prepare()
	late.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal = err
	s.prepared = err == nil && s.unfit == nil
	s.announce()
}

func (s *session) isPrepared() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.prepared
}

func (s *session) isConnected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connected
}

// spoil makes every later call for a lock fail, because of err.
func (s *session) spoil(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unfit == nil {
		s.unfit = err
	}
}

// hangUp closes the connection: the transport then tries the next server.
func (s *session) hangUp() {
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l != nil {
		l.Close()
	}
}

// await waits until there is a session that was prepared, or for ctx, or for a refusal.
func (s *session) await(ctx context.Context) (why error) {
	if !s.awaitState(ctx, func() bool {
		if !s.prepared {
			why = cmp.Or(s.unfit, s.refusal)
		}
		return why != nil || s.connected && s.prepared
	}) {
		return s.notConnected()
	}
	return why
}

// notConnected returns errNotConnected with what is known of the reason.
func (s *session) notConnected() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.prepared && s.link.sessionTimeout() == 0:
		return fmt.Errorf("%w: %v is connected and does not take this client: it hangs, has no majority, or less than the client has seen; if Ensemble.Servers were restored from a backup, open the client anew, else look whether they are of one ensemble", errNotConnected, s.link.RemoteAddr())
	case s.link != nil && s.link.sessionTimeout() == 0:
		return fmt.Errorf("%w: %v is connected and has not answered as a server of ZooKeeper with a majority does: see whether it hangs, look at Ensemble.Servers, and whether these want TLS (zks:// in a URL)", errNotConnected, s.link.RemoteAddr())
	case s.undialled != nil:
		return fmt.Errorf("%w: %v", errNotConnected, s.undialled) // it may be a context's error
	}
	return errNotConnected
}

// awaitState waits until there, which is called under s.mu, reports true. It reports false when ctx
// or the client's life ended before that.
func (s *session) awaitState(ctx context.Context, there func() bool) bool {
	for {
		s.mu.Lock()
		found, news := there(), s.news
		s.mu.Unlock()
		if found {
			return true
		}
		select {
		case <-news:
		case <-ctx.Done():
			return false
		case <-s.life.Done():
			return false
		}
	}
}

// rule: session-outlasts-lease

// outlasts reports whether the session is known to last until d from now, whatever happens to the
// server that this client is connected to.
func (s *session) outlasts(now clock.Instant, d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	lasts := s.touches.lasts
	return now.Until(s.touches.latest(now).Add(lasts-quorum.Drift(lasts))) >= d
}

// cut ends the connection, and no other is made: what the session has left then stays until the
// servers end it.
func (s *session) cut() {
	s.end()
	s.hangUp()
}

// close ends the session or, with keep, only the connection, and waits for all that is under way.
func (s *session) close(keep bool) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	if keep {
		s.hangUp()
	}
	s.conn.Close()
	s.hangUp()
	for range s.ended { // until the transport closes it
	}
	s.background.Wait()
}
