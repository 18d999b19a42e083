//go:build linux

package torture

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/torture/worker"
)

// broken is Redlock with a bug: it needs one node less than a quorum. It has no
// quarantine either, which is the bug where there is only one node. Its fencing tokens are the
// time of the worker's machine.
type broken struct {
	nodes  []*brokenNode
	quorum int
	limit  time.Duration // for the answer of a node
	ttl    time.Duration
}

// credulous is a lock in an ensemble with a bug: the holder relies on it until it releases it, even
// if it was lost.
type credulous struct{ locker }

func (c credulous) Lock(ctx context.Context, name string) (worker.Hold, error) {
	lock, err := c.client.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	return credulousHold{lock, time.Now().Add(time.Hour)}, nil
}

// credulousHold never says that it is lost.
type credulousHold struct {
	*redlatch.Lock
	until time.Time
}

func (h credulousHold) Until() time.Time { return h.until }
func (h credulousHold) Err() error       { return nil }

// brokenNode is a node and its client, which is made later if the node is down.
type brokenNode struct {
	option rueidis.ClientOption
	turn   chan struct{} // holds a token while a goroutine makes the client
	client rueidis.Client
}

// connected returns the node's client, or nil if the node has been down so far.
func (n *brokenNode) connected() rueidis.Client {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	if n.client == nil {
		if client, err := rueidis.NewClient(n.option); err == nil {
			n.client = client
		}
	}
	return n.client
}

func openBroken(a worker.Assignment) (worker.Locker, error) {
	b := &broken{ttl: a.TTL(), quorum: max(1, len(a.Nodes)/2), limit: nodeLimit}
	if len(a.Nodes) == 1 {
		b.limit *= 6 // there is no other node whose answer would suffice
	}
	for _, raw := range a.Nodes {
		option, err := rueidis.ParseURL(raw)
		if err != nil {
			return nil, err
		}
		option.DisableCache, option.DisableRetry = true, true
		option.ForceSingleClient = len(option.InitAddress) == 1
		option.Dialer.Timeout, option.ConnWriteTimeout = b.limit, b.limit
		b.nodes = append(b.nodes, &brokenNode{option: option, turn: make(chan struct{}, 1)})
	}
	return b, nil
}

func (b *broken) Close() error {
	for _, n := range b.nodes {
		if n.client != nil {
			n.client.Close()
		}
	}
	return nil
}

// nodeLimit is how long broken waits for the answer of one of many nodes.
const nodeLimit = 50 * time.Millisecond

// all sends a command to all nodes at once and returns the number of nodes that executed it.
func (b *broken) all(command func(rueidis.Client) rueidis.Completed) (done int) {
	ctx, cancel := context.WithTimeout(context.Background(), b.limit)
	defer cancel()
	var mu sync.Mutex // guards done
	var asking sync.WaitGroup
	for _, n := range b.nodes {
		asking.Go(func() {
			client := n.connected()
			if client == nil {
				return
			}
			err := client.Do(ctx, command(client)).Error()
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				done++
			}
		})
	}
	asking.Wait()
	return done
}

func (b *broken) Lock(ctx context.Context, name string) (worker.Hold, error) {
	for {
		h := &brokenHold{broken: b, name: name, id: rand.Text(), until: time.Now().Add(b.ttl), token: uint64(time.Now().UnixMicro())}
		granted := b.all(func(n rueidis.Client) rueidis.Completed {
			return n.B().Set().Key(name).Value(h.id).Nx().Px(b.ttl).Build()
		})
		if granted >= b.quorum && time.Now().Before(h.until) {
			return h, nil
		}
		_ = h.Unlock(ctx)
		if !wait(ctx, 20*time.Millisecond) {
			return nil, context.Cause(ctx)
		}
	}
}

// brokenHold is one acquisition, which is not renewed.
type brokenHold struct {
	*broken
	name, id string
	until    time.Time
	token    uint64
}

var errOver = errors.New("its validity ran out")

func (h *brokenHold) Until() time.Time { return h.until }
func (h *brokenHold) Token() uint64    { return h.token }

func (h *brokenHold) Err() error {
	if time.Now().Before(h.until) {
		return nil
	}
	return errOver
}

func (h *brokenHold) Unlock(context.Context) error {
	const script = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`
	h.all(func(n rueidis.Client) rueidis.Completed {
		return n.B().Eval().Script(script).Numkeys(1).Key(h.name).Arg(h.id).Build()
	})
	return nil
}
