package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/script"
)

// ttl is what every contestant whose user chooses one locks for. No lock here
// lives long enough for it to matter.
const ttl = 10 * time.Second

var compareAndDelete = script.New(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

var (
	errNotGranted = errors.New("no quorum granted the lock")
	errNotDeleted = errors.New("no quorum deleted the lock")
)

// floor is the least that a lock over these nodes can do: one SET NX PX and one
// compare-and-delete a node, under a random id, over one connection a node that
// always pipelines. It has no timeout, no clock, no renewal, no token, and tells
// nobody why it failed: it is a measure, not a lock.
//
// Over several nodes it waits as a fair Redlock must: in both steps for a quorum
// and no longer, since waiting for all would make the floor as slow as the
// slowest node, and waiting for none would make it no lock. Nodes that have not
// answered by then are finished by the goroutines that asked them. On each node
// the delete is sent by the goroutine whose set has been answered: sent before
// that it may overtake, and the record stays.
type floor struct {
	nodes []rueidis.Client
	steps
}

// steps are what is sent to a node.
type steps interface {
	set(ctx context.Context, node rueidis.Client, name, id string) bool
	delete(ctx context.Context, node rueidis.Client, name, id string) bool
}

func openFloor(addrs []string) (locker, error) {
	f, err := openSteps(addrs, least{}, compareAndDelete.Text)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// openSteps connects, and loads the scripts.
func openSteps(addrs []string, s steps, scripts ...string) (*floor, error) {
	f := &floor{steps: s}
	for _, addr := range addrs {
		client, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress:       []string{addr},
			PipelineMultiplex: -1,
			AlwaysPipelining:  true,
			DisableRetry:      true,
			DisableCache:      true,
			ForceSingleClient: true,
		})
		if err != nil {
			f.close()
			return nil, err
		}
		f.nodes = append(f.nodes, client)
		for _, text := range scripts {
			if err := client.Do(context.Background(), client.B().ScriptLoad().Script(text).Build()).Error(); err != nil {
				f.close()
				return nil, err
			}
		}
	}
	return f, nil
}

func (f *floor) close() {
	for _, node := range f.nodes {
		node.Close()
	}
}

func (f *floor) pair(_ context.Context, name string) error {
	ctx := context.Background() // a wait that can end costs more
	id := rand.Text()
	if len(f.nodes) == 1 {
		switch {
		case !f.set(ctx, f.nodes[0], name, id):
			return errNotGranted
		case !f.delete(ctx, f.nodes[0], name, id):
			return errNotDeleted
		}
		return nil
	}

	granted := make(chan bool, len(f.nodes))
	unlock := make(chan struct{})
	deleted := make(chan bool, len(f.nodes))
	for _, node := range f.nodes {
		go func() {
			granted <- f.set(ctx, node, name, id)
			<-unlock
			deleted <- f.delete(ctx, node, name, id)
		}()
	}
	held := f.quorum(granted)
	close(unlock)
	switch gone := f.quorum(deleted); {
	case !held:
		return errNotGranted
	case !gone:
		return errNotDeleted
	}
	return nil
}

// quorum counts votes until no further one changes the outcome.
func (f *floor) quorum(votes <-chan bool) bool {
	need := len(f.nodes)/2 + 1
	for yes, no := 0, 0; ; {
		if <-votes {
			yes++
		} else {
			no++
		}
		switch {
		case yes == need:
			return true
		case no > len(f.nodes)-need:
			return false
		}
	}
}

// least is the least that a step can be.
type least struct{}

func (least) set(ctx context.Context, node rueidis.Client, name, id string) bool {
	return node.Do(ctx, node.B().Set().Key(name).Value(id).Nx().Px(ttl).Build()).Error() == nil
}

func (least) delete(ctx context.Context, node rueidis.Client, name, id string) bool {
	n, err := node.Do(ctx, node.B().Evalsha().Sha1(compareAndDelete.SHA).Numkeys(1).Key(name).Arg(id).Build()).AsInt64()
	return err == nil && n == 1
}
