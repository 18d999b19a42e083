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
	"github.com/redlatch/redlatch/internal/quorum"
)

// session is this client's session with the ensemble, by one connection at a time. Its end
// deletes what the client has left, and nothing relies on it but those who did not watch.
type session struct {
	// asked is how long the session is to last at least.
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
	// background is what Close waits for, and room bounds the requests under way.
	background sync.WaitGroup
	room       chan struct{}

	mu     sync.Mutex // guards what follows; nothing is called while it is held
	closed bool
	link   *link
	// news is closed when one of the next has changed, and replaced.
	news chan struct{}
	// connected: there is a connection with a session. prepared: it was prepared once; refusal is
	// why it is not yet, unfit why it never will be.
	connected, prepared bool
	refusal, unfit      error
	touches             touches
	// last has the end of the last request under way for each id that has one.
	last map[string]chan struct{}
}

const (
	// maxRequests bounds the requests under way.
	maxRequests = 1024
	// heartbeats is how many are sent while the session lasts.
	heartbeats = 16
)

var (
	errNotConnected = errors.New("no server is connected")
	errBusy         = errors.New("too many requests are under way")
	errAbandoned    = errors.New("no answer yet")
)

// newSession begins to connect. changed is called with the path of what has changed, or "" for all,
// and does not block; prepare is called when there is a session, until it returns no error.
func newSession(asked time.Duration, e Ensemble, config *tls.Config, logger zk.Logger, changed func(path string), prepare func() error) *session {
	s := &session{
		asked: asked, connect: e.dialer(config), changed: changed, prepare: prepare,
		room: make(chan struct{}, maxRequests), news: make(chan struct{}), last: make(map[string]chan struct{}),
	}
	s.life, s.end = context.WithCancel(context.Background())
	// An error comes of an empty list alone.
	s.conn, s.ended, _ = zk.Connect(e.Servers, asked, zk.WithDialer(s.dial), zk.WithHostProvider(newHosts(e.Servers)),
		zk.WithLogger(logger), zk.WithLogInfo(false), zk.WithEventCallback(s.event))
	return s
}

// start begins to keep the session.
func (s *session) start() { s.run(s.attend) }

// patience is how long a heartbeat or a handshake may take: then another server is tried.
func (s *session) patience() time.Duration {
	return min(max(s.asked/heartbeats, 500*time.Millisecond), 5*time.Second)
}

// event is called by the transport, in order, and does not block.
func (s *session) event(e zk.Event) {
	if e.Type != zk.EventSession {
		s.changed(e.Path)
		return
	}
	if e.State == zk.StateHasSession {
		defer s.changed("") // of what has changed meanwhile, nobody may have been told
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

// attend keeps the session: it prepares it, sends heartbeats, and has another server tried when
// one is not answered by a majority. It ends with the life of the client.
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

// heartbeat asks the leader, by way of the server. It reports false when no answer came, though
// there is a connection.
func (s *session) heartbeat(now clock.Instant) bool {
	if !s.isConnected() {
		return true
	}
	ctx, cancel := context.WithTimeout(s.life, s.patience())
	defer cancel()
	_, err := do(ctx, s, "", func() (string, error) { return s.conn.Sync("/") })
	if err != nil {
		return !errors.Is(err, errAbandoned)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lasts := s.link.sessionTimeout()
	// A follower tells the leader twice a tick whom it has heard, and a session lasts for two
	// ticks at least: a quarter of it, and some time on the way.
	s.touches.add(touch{sent: now, known: clock.System.Now().Add(lasts / 3)}, lasts)
	return true
}

// tryToPrepare prepares the session once there is one.
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

// spoil has no lock be had any more, because of err.
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
		return errNotConnected
	}
	return why
}

// awaitState waits until there is what is asked of the state, under s.mu; it reports false when ctx
// or the client's life has ended before.
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

// outlasts reports whether the session is known to last until d from now, whatever happens to
// the server that this client is connected to.
func (s *session) outlasts(now clock.Instant, d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	lasts := s.touches.lasts
	return now.Until(s.touches.latest(now).Add(lasts-quorum.Drift(lasts))) >= d
}

// cut ends the connection, and has none made again: what the session has left then stays until
// the servers end it.
func (s *session) cut() {
	s.end()
	s.hangUp()
}

// close ends the session, or with keep the connection alone, and waits for all that is under way.
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
