package zookeeper

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// link is one connection to a server. It also reads the answer to the handshake, which says how
// long the session will last: the transport does not tell.
type link struct {
	net.Conn
	// begun is a time before the handshake was sent.
	begun clock.Instant
	// limit is the time by which the handshake must be answered.
	limit time.Time

	mu   sync.Mutex // guards head
	head []byte
}

const (
	// headBytes is how much of the answer is needed: a length, a version and the timeout.
	headBytes = 12
	// maxAnswer is more than the length of any server's answer to the handshake, which is 37, and
	// less than the first four bytes of a text are as a length.
	maxAnswer = 1 << 10
)

var errNotZooKeeper = errors.New("what answers is not a ZooKeeper server")

func newLink(conn net.Conn, patience time.Duration) *link {
	return &link{Conn: conn, begun: clock.System.Now(), limit: time.Now().Add(patience)}
}

func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	if missing := headBytes - len(l.head); missing > 0 {
		l.head = append(l.head, p[:min(n, missing)]...)
		if len(l.head) >= 4 && binary.BigEndian.Uint32(l.head) > maxAnswer {
			return 0, errNotZooKeeper // before the transport makes room for an answer of that length
		}
	}
	return n, err
}

// Write returns no error: where it fails, it closes the connection, and the transport reads that. It may stand still for ever
// after an error of Write, where it sends the user anew.
func (l *link) Write(p []byte) (int, error) {
	if _, err := l.Conn.Write(p); err != nil {
		l.Conn.Close()
	}
	return len(p), nil
}

// SetReadDeadline bounds the handshake: the transport would wait for several session timeouts.
func (l *link) SetReadDeadline(t time.Time) error {
	if l.sessionTimeout() == 0 && (t.IsZero() || t.After(l.limit)) {
		t = l.limit
	}
	return l.Conn.SetReadDeadline(t)
}

// sessionTimeout returns how long the session lasts, 0 while that is not known.
func (l *link) sessionTimeout() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.head) < headBytes {
		return 0
	}
	return time.Duration(binary.BigEndian.Uint32(l.head[8:])) * time.Millisecond
}

// hosts makes the transport try the servers in turn, beginning at a random one. Their names are
// resolved when they are dialled, so that TLS sees the names and a changed address is found.
type hosts struct {
	servers []string

	mu    sync.Mutex // guards what follows
	next  int
	tried int // since the last connection
}

func newHosts(servers []string) *hosts {
	return &hosts{servers: servers, next: rand.IntN(len(servers))}
}

func (*hosts) Init([]string) error { return nil }
func (h *hosts) Len() int          { return len(h.servers) }

// Next returns the next server. again: all have been tried in vain, and the transport rests first.
func (h *hosts) Next() (server string, again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next = (h.next + 1) % len(h.servers)
	h.tried++
	if again = h.tried > len(h.servers); again {
		h.tried = 1
	}
	return h.servers[h.next], again
}

func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = 0
}

// dial connects the transport to a server.
func (s *session) dial(_, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.life, timeout)
	defer cancel()
	conn, err := s.connect(ctx, address)
	if err != nil {
		s.mu.Lock()
		s.undialled = err
		s.mu.Unlock()
		return nil, err
	}
	l := newLink(conn, s.patience())
	s.mu.Lock()
	before := s.link
	s.link = l
	s.mu.Unlock()
	if before != nil {
		before.Close() // the transport leaves one open on which it was told that the session has ended
	}
	if err := s.life.Err(); err != nil { // whoever ended it may have hung up before
		l.Close()
		return nil, err
	}
	return l, nil
}
