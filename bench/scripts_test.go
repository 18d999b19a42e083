package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/script"
)

// scripts is redlatch's own scripts, sent by the floor's client, which does nothing
// besides. What it takes more than the floor is what tokens, the quarantine and the wait queue
// cost a server; what redlatch takes more than it is the client's. Like the floor it is a
// measure, not a lock.
type scripts struct{}

var bareVoting = script.Voting("bench")

func openScripts(addrs []string) (locker, error) {
	f, err := openSteps(addrs, scripts{}, bareVoting.Text, script.Releasing.Text)
	if err == nil {
		err = admit(f)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// admissions has what each server's admission key is expected to have.
var admissions sync.Map // of string by rueidis.Client

// admit has the nodes vote.
func admit(f *floor) error {
	for _, to := range f.nodes {
		ctx := context.Background()
		info, err := to.Do(ctx, to.B().Info().Section("replication").Build()).ToString()
		if err != nil {
			return err
		}
		_, after, _ := strings.Cut(info, "master_replid:")
		replication, _, _ := strings.Cut(after, "\r")
		expected := "bench run " + replication
		if err := to.Do(ctx, to.B().Set().Key("admitted").Value(expected+" 0000000000000000").Build()).Error(); err != nil {
			return err
		}
		admissions.Store(to, expected)
	}
	return nil
}

func expected(to rueidis.Client) string {
	text, _ := admissions.Load(to)
	return text.(string)
}

const (
	ttlText        = "10000"
	counterTTLText = "38000"
)

func (scripts) set(ctx context.Context, node rueidis.Client, name, id string) bool {
	_, err := acquireByScript(ctx, node, name, id).AsInt64()
	return err == nil
}

func acquireByScript(ctx context.Context, to rueidis.Client, name, id string, waiter ...string) rueidis.RedisResult {
	counter, next := node.CounterKey(name), node.NextKey(name)
	proposed := strconv.FormatInt(time.Now().UnixMicro(), 10)
	return to.Do(ctx, to.B().Evalsha().Sha1(bareVoting.SHA).Numkeys(4).Key(name, counter, "admitted", next).
		Arg(script.Acquire, id, ttlText, proposed, proposed[:len(proposed)-6], counterTTLText, expected(to)).Arg(waiter...).Build())
}

func (scripts) delete(ctx context.Context, to rueidis.Client, name, id string) bool {
	counter, next := node.CounterKey(name), node.NextKey(name)
	n, err := to.Do(ctx, to.B().Evalsha().Sha1(script.Releasing.SHA).Numkeys(3).Key(name, counter, next).
		Arg(id, "0", counterTTLText).Build()).AsInt64()
	return err == nil && n > 0
}

// calling is scripts for one who waits on one node: it is called, and asks for the lock. It
// believes that it is called in time.
type calling struct {
	*floor
	waiter string
	called chan struct{}
}

func openCalling(addrs []string) (locker, error) {
	f, err := openSteps(addrs, scripts{}, bareVoting.Text, script.Releasing.Text)
	if err != nil {
		return nil, err
	}
	if err := admit(f); err != nil {
		return nil, err
	}
	process := rand.Text()
	c := &calling{f, process + "/1", make(chan struct{}, 1)}
	client := f.nodes[0]
	listening := make(chan struct{})
	listens := sync.OnceFunc(func() { close(listening) })
	ctx := rueidis.WithOnSubscriptionHook(context.Background(), func(rueidis.PubSubSubscription) { listens() })
	go client.Receive(ctx, client.B().Subscribe().Channel("redlatch:wake:"+process).Build(), func(rueidis.PubSubMessage) {
		c.called <- struct{}{}
	}) // until it is closed
	<-listening
	return c, nil
}

func (c *calling) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	to, id := c.nodes[0], rand.Text()
	unlock := func(context.Context) error {
		if !c.delete(context.Background(), to, name, id) {
			return errNotDeleted
		}
		return nil
	}
	if c.set(ctx, to, name, id) {
		return unlock, nil
	}
	next := node.NextKey(name)
	stand := to.B().Evalsha().Sha1(bareVoting.SHA).Numkeys(3).Key(name, "admitted", next).Arg(script.Enqueue, c.waiter, "0", expected(to)).Build()
	if err := to.Do(ctx, stand).Error(); err != nil {
		return nil, err
	}
	select {
	case <-c.called:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	granted, err := acquireByScript(ctx, to, name, id, c.waiter).ToArray()
	if err == nil && len(granted) != 3 {
		err = errors.Join(errNotGranted, fmt.Errorf("called and answered %v", granted))
	}
	return unlock, err
}
