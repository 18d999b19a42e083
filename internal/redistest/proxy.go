package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// ProxyOptions say how a proxy is made. The zero value will do.
type ProxyOptions struct {
	// Seed decides the jitter of [Proxy.Delay]. Defaults to 0.
	Seed uint64

	// Port fixes the TCP port. Defaults to a free one.
	Port int
}

// Proxy is a TCP proxy in front of one server whose network can be made to
// fail. It passes any bytes; of those that are plain Redis protocol, it knows
// the commands and the replies, and delays, loses or counts them whole. Bytes of
// one direction of one connection are never reordered.
//
// All methods are safe for concurrent use, take effect on present and on new
// connections, and, but for Close, Await and Refuse, do not block.
type Proxy struct {
	port int
	seed uint64

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup // accept loops and links

	// turn holds one token: who has it may open or close the listener.
	turn chan struct{}

	mu       sync.Mutex // guards the fields below and every link's lost; never held while anything waits
	rules    rules
	changed  chan struct{} // closed and replaced when rules change
	target   string
	hook     func(Command) Action
	rewrite  func([]string) []string
	listener net.Listener // nil while connections are refused
	links    map[*link]bool
	stats    Stats         // all but Open, which snapshot adds
	counted  chan struct{} // closed and dropped when a count changes; nil while nobody waits
	closed   bool
}

// StartProxy starts a proxy on a loopback port in front of target, a host:port
// or the path of a Unix socket. Nobody need be there yet. It runs until Close.
func StartProxy(target string, opts ProxyOptions) (*Proxy, error) {
	p := &Proxy{
		port: opts.Port, seed: opts.Seed, target: target,
		turn: make(chan struct{}, 1), changed: make(chan struct{}), links: map[*link]bool{},
		stats: Stats{Seen: map[string]int{}, Forwarded: map[string]int{}},
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	err := p.firstListen()
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("redistest: starting a proxy: %w", err)
	}
	return p, nil
}

// NewProxy starts a proxy for one test and closes it when the test is done. At
// most one ProxyOptions may be given. It fails the test when it cannot listen.
func NewProxy(t TB, target string, opts ...ProxyOptions) *Proxy {
	t.Helper()
	var o ProxyOptions
	if len(opts) > 1 {
		t.Fatalf("redistest: %d ProxyOptions given, at most one is taken", len(opts))
	}
	if len(opts) == 1 {
		o = opts[0]
	}
	p, err := StartProxy(target, o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(p.Close)
	return p
}

// Proxies starts one proxy in front of each server, in order, and closes them
// when the test is done.
func Proxies(t TB, servers []*Server) []*Proxy {
	t.Helper()
	proxies := make([]*Proxy, len(servers))
	for i, s := range servers {
		proxies[i] = NewProxy(t, s.Addr(), ProxyOptions{Seed: uint64(i)})
	}
	return proxies
}

// Addr returns the proxy's host:port.
func (p *Proxy) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// URL returns the proxy's address as a redis:// URL without a password.
func (p *Proxy) URL() string { return "redis://" + p.Addr() }

// Close ends all connections and blocks until every goroutine of the proxy has
// ended. A hook of [Proxy.OnCommand] that is running is waited for. Closing
// twice does nothing more.
func (p *Proxy) Close() {
	p.turn <- struct{}{}
	p.unlisten()
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.mu.Unlock()
	<-p.turn
	p.stop()
	p.Cut()
	p.wg.Wait()
	if first {
		ReleasePort(p.port)
	}
}

func (p *Proxy) firstListen() error {
	if p.port != 0 {
		if !reserve(p.port) {
			return fmt.Errorf("ProxyOptions.Port %d is in use by another Server or Proxy", p.port)
		}
		err := p.listen()
		if err != nil {
			ReleasePort(p.port)
		}
		return err
	}
	var last error
	for range 20 {
		port, err := ReservePort()
		if err != nil {
			return err
		}
		p.port = port
		if last = p.listen(); last == nil {
			return nil
		}
		ReleasePort(port)
	}
	return last
}

// listen opens the listener unless it is open; the caller has the turn, or is
// the only one who knows of p.
func (p *Proxy) listen() error {
	p.mu.Lock()
	listening, closed := p.listener != nil, p.closed
	p.mu.Unlock()
	if closed {
		return fmt.Errorf("redistest: proxy %s: %w", p.Addr(), ErrClosed)
	}
	if listening {
		return nil
	}
	l, err := net.Listen("tcp4", p.Addr())
	// A process that is being started has all that is open here until it begins, the former listener too.
	for tries := 0; errors.Is(err, syscall.EADDRINUSE) && tries < 400 && p.ctx.Err() == nil; tries++ {
		waitFor(p.ctx, nil, 5*time.Millisecond)
		l, err = net.Listen("tcp4", p.Addr())
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.listener = l
	p.mu.Unlock()
	p.wg.Go(func() { p.accept(l) })
	return nil
}

// unlisten closes the listener if it is open; the caller has the turn.
func (p *Proxy) unlisten() {
	p.mu.Lock()
	l := p.listener
	p.listener = nil
	p.mu.Unlock()
	if l != nil {
		l.Close()
	}
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		nc, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of descriptors, most likely: a few may be free in a moment.
			waitFor(p.ctx, nil, 5*time.Millisecond)
			continue
		}
		p.admit(nc)
	}
}

// admit starts a link for a client's connection.
func (p *Proxy) admit(nc net.Conn) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		reset(nc)
		return
	}
	p.stats.Accepted++
	l := newLink(p, nc, p.stats.Accepted)
	p.links[l] = true
	p.recounted()
	p.mu.Unlock()
	p.wg.Go(func() {
		l.run()
		p.mu.Lock()
		delete(p.links, l)
		p.recounted()
		p.mu.Unlock()
	})
}

// open returns the links that have not ended.
func (p *Proxy) open() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	return links
}

func (p *Proxy) currentRules() rules {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rules
}

// reset closes a connection without the handshake of an ordinary close: the
// peer reads "connection reset".
func reset(nc net.Conn) {
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	nc.Close()
}
