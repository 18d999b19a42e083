package redistest

import (
	"net"
	"testing"
	"time"
)

// Between the end of a black hole and the cut of a connection that lost
// something in it, nothing of that direction is delivered: the peer would take
// it for what was lost.
func TestNothingPassesAfterAHole(t *testing.T) {
	p := NewProxy(t, "127.0.0.1:1")
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	l := newLink(p, here, 1)
	defer l.sever(true)
	p.BlackHole(Replies, true)
	now := item{at: time.Now()}
	if got := p.gate(l, Replies, now, luck{}); got != discard {
		t.Fatalf("in the hole: %v, want discard", got)
	}
	p.BlackHole(Replies, false) // the proxy does not know the link, and does not cut it
	if got := p.gate(l, Replies, now, luck{}); got != discard {
		t.Errorf("after the hole: %v, want discard", got)
	}
	if got := p.gate(l, Requests, now, luck{}); got != deliver {
		t.Errorf("the other way: %v, want deliver", got)
	}
}
