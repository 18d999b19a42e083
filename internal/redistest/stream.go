package redistest

import (
	"context"
	"sync"
	"time"
)

// streamLimit bounds what one direction of one connection holds back. Beyond it
// the proxy stops reading, and the sender's own buffers fill: as on a slow link.
const streamLimit = 8 << 20

// item is what travels through a stream as a whole: a command, a reply, or, where
// the bytes are not of the protocol, whatever was read at once.
type item struct {
	data []byte
	args []string  // of a command
	at   time.Time // when it was read
	kind itemKind
}

type itemKind uint8

const (
	content   itemKind = iota
	ending             // the sender closed its side; the last item of a stream
	severing           // cut the connection when the items before have been delivered
	deafening          // from this item on, itself included, discard all
)

// stream is one direction of one connection: a queue with one taker, and one
// putter at a time.
type stream struct {
	mu    sync.Mutex // guards items and size
	items []item
	size  int // bytes in items

	ready chan struct{} // one token: something was put
	space chan struct{} // one token: something was taken
}

func newStream() *stream {
	return &stream{ready: make(chan struct{}, 1), space: make(chan struct{}, 1)}
}

// put appends an item. It blocks while the stream is full, unless ctx ends: then
// it reports false. An empty stream takes an item of any size.
func (q *stream) put(ctx context.Context, it item) bool {
	it.at = time.Now()
	for {
		q.mu.Lock()
		if len(q.items) == 0 || q.size+len(it.data) <= streamLimit {
			q.items = append(q.items, it)
			q.size += len(it.data)
			q.mu.Unlock()
			token(q.ready)
			return true
		}
		q.mu.Unlock()
		select {
		case <-q.space:
		case <-ctx.Done():
			return false
		}
	}
}

// take removes the first item. It blocks while the stream is empty, unless ctx
// ends: then it reports false.
func (q *stream) take(ctx context.Context) (item, bool) {
	for {
		q.mu.Lock()
		if len(q.items) > 0 {
			it := q.items[0]
			q.items[0] = item{}
			q.items = q.items[1:]
			q.size -= len(it.data)
			q.mu.Unlock()
			token(q.space)
			return it, true
		}
		q.mu.Unlock()
		select {
		case <-q.ready:
		case <-ctx.Done():
			return item{}, false
		}
	}
}

// token leaves a token where there is none.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
