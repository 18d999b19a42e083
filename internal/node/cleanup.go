package node

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
)

// maxCleanUps bounds the keys whose deletion a node has not answered. Beyond it the oldest key is
// left to its TTL.
const maxCleanUps = 4096

// recent is how many of the last clean-ups are searched for one that is there already.
const recent = 32

// cleanUp is a key that may be on a node and whose release got no answer.
type cleanUp struct {
	request vote.Release
	// gone is the time by which its TTL has removed it, even if the node executes what was sent as late as it may.
	gone time.Time
}

// cleanUps is the list of what is still to be released on one node.
type cleanUps struct {
	mu      sync.Mutex // guards what follows; nothing is called while it is held
	list    []cleanUp
	running bool
}

// add puts c on the list, and reports whether the caller must start working the list off. A key
// that several tries of a call wanted removed is kept once.
func (s *cleanUps) add(c cleanUp) (start bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, known := range s.list[max(0, len(s.list)-recent):] {
		if known.request.ID == c.request.ID && known.request.Key == c.request.Key {
			return false
		}
	}
	if len(s.list) == maxCleanUps {
		s.list = s.list[1:]
	}
	s.list = append(s.list, c)
	start = !s.running
	s.running = true
	return start
}

// next takes the oldest key that its TTL has not removed yet. ok is false when there is none, and
// the work is over.
func (s *cleanUps) next() (cleanUp, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.list) > 0 {
		c := s.list[0]
		s.list = s.list[1:]
		if now.Before(c.gone) {
			return c, true
		}
	}
	s.list, s.running = nil, false
	return cleanUp{}, false
}

// back puts what could not be released yet back to the head of the list, unless the list is full by now.
func (s *cleanUps) back(c cleanUp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) < maxCleanUps {
		s.list = append([]cleanUp{c}, s.list...)
	}
}

// workOff releases the keys on the list, at a pace that spares a node that is
// down. Once the node is being closed, it ends with the first try that gets no answer.
func (n *Node) workOff() {
	const first, last = 20 * time.Millisecond, time.Second
	pause, closing := first, false
	for {
		c, ok := n.cleanUps.next()
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(n.life, n.options.ConnectTimeout)
		_, err := n.release(ctx, c.request)
		cancel()
		if isFinal(err) {
			pause = first
			continue
		}
		if closing {
			return
		}
		n.cleanUps.back(c)
		select {
		case <-time.After(pause):
			pause = min(2*pause, last)
		case <-n.closing.Done():
			closing = true
		case <-n.life.Done():
			return
		}
	}
}

// finish has what is still to be released tried once more, since the node may be back, and waits for
// that, or for Cut.
func (n *Node) finish() {
	n.beginClosing()
	n.cleaning.Wait()
}
