package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/etcd"
	"github.com/redlatch/redlatch/internal/ensembletest"
	"github.com/redlatch/redlatch/internal/locktest/enginetest"
	"github.com/redlatch/redlatch/oneshot"
)

// commit executes a transaction.
type commit func(ctx context.Context) (*clientv3.TxnResponse, error)

// wire is a program's client on which a write can go wrong at the worst moment.
type wire struct {
	clientv3.KV
	client *clientv3.Client
	// sent counts the transactions.
	sent atomic.Int64
	// fault, if any, is called once in place of the next transaction that writes.
	fault atomic.Pointer[func(ctx context.Context, commit commit) (*clientv3.TxnResponse, error)]
}

var errLost = errors.New("the answer is lost")

// newWire is one over the cluster, in a namespace of the test's own.
func newWire(t *testing.T, c *ensembletest.Etcd, prefix string) *wire {
	t.Helper()
	w := &wire{client: dial(t, c.Addrs()...)}
	t.Cleanup(func() { w.client.Close() })
	w.KV = namespace.NewKV(w.client.KV, prefix)
	w.client.KV = w
	w.client.Watcher = namespace.NewWatcher(w.client.Watcher, prefix)
	w.client.Lease = namespace.NewLease(w.client.Lease, prefix)
	return w
}

// open opens a Client over it, which is closed after the test.
func (w *wire) open(t *testing.T) *redlatch.Client {
	t.Helper()
	client, err := etcd.Open(enginetest.Patient, w.client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// spoil has f called in place of the next transaction that writes.
func (w *wire) spoil(f func(ctx context.Context, commit commit) (*clientv3.TxnResponse, error)) {
	w.fault.Store(&f)
}

func (w *wire) Txn(ctx context.Context) clientv3.Txn { return &wireTxn{wire: w, ctx: ctx} }

type wireTxn struct {
	wire   *wire
	ctx    context.Context
	cmps   []clientv3.Cmp
	then   []clientv3.Op
	orElse []clientv3.Op
}

func (x *wireTxn) If(c ...clientv3.Cmp) clientv3.Txn  { x.cmps = c; return x }
func (x *wireTxn) Then(o ...clientv3.Op) clientv3.Txn { x.then = o; return x }
func (x *wireTxn) Else(o ...clientv3.Op) clientv3.Txn { x.orElse = o; return x }

func (x *wireTxn) Commit() (*clientv3.TxnResponse, error) {
	x.wire.sent.Add(1)
	commit := func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return x.wire.KV.Txn(ctx).If(x.cmps...).Then(x.then...).Else(x.orElse...).Commit()
	}
	if !x.then[0].IsGet() {
		if f := x.wire.fault.Swap(nil); f != nil {
			return (*f)(x.ctx, commit)
		}
	}
	return commit(x.ctx)
}

// The reply to a transaction is lost, which is executed, or not.
func TestLostReplyOfAGrant(t *testing.T) {
	t.Parallel()
	c := common(t)
	prefix := enginetest.Root(t)
	w := newWire(t, c, prefix)
	client, other := w.open(t), newWire(t, c, prefix).open(t)
	for i, executed := range []bool{true, false, true} {
		name := fmt.Sprint("name", i)
		w.spoil(func(ctx context.Context, commit commit) (*clientv3.TxnResponse, error) {
			if executed {
				commit(ctx)
			}
			return nil, errLost
		})
		l, err := client.TryLock(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if w.fault.Load() != nil {
			t.Fatal("no transaction was sent")
		}
		if _, err := other.TryLock(t.Context(), name); !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("it is held, and another: %v", err)
		}
		if l.Token() < uint64(time.Now().UnixMicro()) {
			t.Errorf("the token %d", l.Token())
		}
		if err := l.Extend(t.Context(), enginetest.Patient.TTL); err != nil {
			t.Error("extend: ", err)
		}
		w.spoil(func(ctx context.Context, commit commit) (*clientv3.TxnResponse, error) {
			commit(ctx)
			return nil, errLost
		})
		if err := l.Unlock(t.Context()); err != nil {
			t.Error("the reply to the release is lost, not the lock: ", err)
		}
		next, err := other.TryLock(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if next.Token() <= l.Token() {
			t.Errorf("the token %d after %d", next.Token(), l.Token())
		}
		enginetest.Unlock(t, next)
	}
}

// lose has the next write not sent, and returns where it will be.
func (w *wire) lose(then func()) <-chan commit {
	late := make(chan commit, 1)
	w.spoil(func(_ context.Context, commit commit) (*clientv3.TxnResponse, error) {
		late <- commit
		then()
		return nil, errLost
	})
	return late
}

// A grant reaches the servers after its attempt was given up, and an extension after the next one:
// neither is executed.
func TestLateWrites(t *testing.T) {
	t.Parallel()
	w := newWire(t, common(t), enginetest.Root(t))
	client := w.open(t)
	t.Run("guessed", func(t *testing.T) { w.lateWrites(t, client, "guessed") })
	t.Run("read", func(t *testing.T) {
		w.plant(t, "read")
		if _, err := client.TryLock(t.Context(), "read"); !errors.Is(err, redlatch.ErrHeld) {
			t.Fatalf("another holds it: %v", err)
		}
		if _, err := w.KV.Delete(t.Context(), "/redlatch/lock/read/", clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
		w.lateWrites(t, client, "read")
	})
}

// giveUp has an attempt given up that was not sent yet, and returns it.
func (w *wire) giveUp(t *testing.T, client *redlatch.Client, name string) commit {
	t.Helper()
	_, before := w.gates(t, name)
	ctx, cancel := context.WithCancel(t.Context())
	late := w.lose(cancel)
	if _, err := client.TryLock(ctx, name); err == nil {
		t.Fatal("it is held")
	}
	enginetest.Await(t, "the attempt is given up", func() bool { _, last := w.gates(t, name); return last > before })
	return <-late
}

// gates returns how many clients keep attempts that they gave up from being executed, and the revision at which one last
// gave one up.
func (w *wire) gates(t *testing.T, name string) (clients int, last int64) {
	t.Helper()
	r, err := w.KV.Get(t.Context(), "/redlatch/lock/"+name+"/gate", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range r.Kvs {
		last = max(last, kv.ModRevision)
	}
	return len(r.Kvs), last
}

// Another client gives an attempt up, too, and closes: the first one's is not executed all the same.
func TestLateGrantAfterAnotherGaveUp(t *testing.T) {
	t.Parallel()
	prefix := enginetest.Root(t)
	w, v := newWire(t, common(t), prefix), newWire(t, common(t), prefix)
	late := w.giveUp(t, w.open(t), "name")
	other := v.open(t)
	v.giveUp(t, other, "name")
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	enginetest.Await(t, "the other's etcd lease has ended", func() bool { clients, _ := w.gates(t, "name"); return clients < 2 })
	if r, err := late(t.Context()); err != nil || r.Succeeded {
		t.Errorf("a grant was executed late: %v", err)
	}
}

func (w *wire) lateWrites(t *testing.T, client *redlatch.Client, name string) {
	late := w.giveUp(t, client, name)
	if r, err := late(t.Context()); err != nil || r.Succeeded {
		t.Errorf("a grant was executed late: %v", err)
	}
	held, err := client.TryLock(t.Context(), name, redlatch.WithoutRenewal())
	if err != nil {
		t.Fatal(err)
	}
	extension := w.lose(func() {})
	held.Extend(t.Context(), enginetest.Patient.TTL/2) // it may be tried again
	if err := held.Extend(t.Context(), enginetest.Patient.TTL); err != nil {
		t.Fatal(err)
	}
	if r, err := (<-extension)(t.Context()); err != nil || r.Succeeded {
		t.Errorf("an extension was executed late: %v", err)
	}
	enginetest.Unlock(t, held)
}

// plant has a lock held by somebody who neither extends nor releases it, and whose etcd lease lives on.
func (w *wire) plant(t *testing.T, name string) (extend func()) {
	t.Helper()
	data := strconv.FormatInt(enginetest.TTL.Milliseconds(), 10)
	place := "/redlatch/lock/" + name
	if _, err := w.KV.Txn(t.Context()).Then(clientv3.OpPut(place+"/held", "planted"), clientv3.OpPut(place+"/lease", data)).Commit(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := w.KV.Put(t.Context(), place+"/lease", data); err != nil {
			t.Error(err)
		}
	}
}

// A lease that nobody extends is taken over, whatever its etcd lease does, and not before it has been
// seen at one version for its TTL.
func TestTakeoverByVersion(t *testing.T) {
	t.Parallel()
	c := common(t)
	w := newWire(t, c, enginetest.Root(t))
	client := w.open(t)
	extend := w.plant(t, "name")
	out := enginetest.LockIn(t, client, "name")
	extended := make(chan time.Time, 1)
	// Once, when the client is about to take over.
	w.spoil(func(ctx context.Context, commit commit) (*clientv3.TxnResponse, error) {
		extend()
		extended <- time.Now()
		return commit(ctx)
	})
	got := <-out
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	if after := got.At.Sub(<-extended); after < enginetest.TTL*9/10 {
		t.Errorf("it was taken over %v after an extension", after)
	}
	enginetest.Unlock(t, got.Lock)
}

// A grant reaches the servers after its attempt was made again, had the lock, and released it: it is not
// executed.
func TestLateGrantOfAnAttemptMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWire(t, common(t), enginetest.Root(t))
	client := w.open(t)
	late := w.lose(func() {})
	held, err := client.TryLock(t.Context(), "name")
	if err != nil {
		t.Fatal(err)
	}
	enginetest.Unlock(t, held)
	if r, err := (<-late)(t.Context()); err != nil || r.Succeeded {
		t.Errorf("a grant was executed late: %v", err)
	}
}

// The servers may execute a grant that uses up their quota, and answer that they have no space: if nobody has the lock
// by it, nothing is left.
func TestGrantWithoutSpace(t *testing.T) {
	t.Parallel()
	w := newWire(t, common(t), enginetest.Root(t))
	client := w.open(t)
	executed := func(ctx context.Context, commit commit) (*clientv3.TxnResponse, error) {
		if _, err := commit(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
		return nil, rpctypes.ErrNoSpace
	}
	w.spoil(executed)
	held, err := client.TryLock(t.Context(), "held")
	if err != nil {
		t.Fatal("it has the lock: ", err)
	}
	enginetest.Unlock(t, held)
	w.spoil(func(ctx context.Context, commit commit) (*clientv3.TxnResponse, error) {
		<-ctx.Done() // then there is no time for a look
		return executed(ctx, commit)
	})
	if _, err := client.TryLock(t.Context(), "late"); !errors.Is(err, redlatch.ErrNoQuorum) {
		t.Fatal(err)
	}
	enginetest.Await(t, "nothing is left", func() bool {
		r, err := w.KV.Get(t.Context(), "/redlatch/lock/late/held", clientv3.WithCountOnly())
		return err == nil && r.Count == 0
	})
	// Where it was not executed, one look tells.
	before := w.sent.Load()
	w.spoil(func(context.Context, commit) (*clientv3.TxnResponse, error) { return nil, rpctypes.ErrNoSpace })
	if _, err := client.TryLock(t.Context(), "full"); !errors.Is(err, redlatch.ErrNoQuorum) || !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Error(err)
	}
	if sent := w.sent.Load() - before; sent != 2 {
		t.Errorf("%d transactions, want 2", sent)
	}
}

// findHeld has the client find that another holds the lock "name". It then knows that it is not free, so that its next write
// asks for a place.
func findHeld(t *testing.T, client *redlatch.Client) {
	enginetest.Await(t, "it is found held", func() bool {
		_, err := client.TryLock(t.Context(), "name")
		return errors.Is(err, redlatch.ErrHeld)
	})
}

// Servers without space refuse to note that an attempt, or a place in the wait queue, was given up: they are asked again
// each second, and not as fast as they answer, for as long as they have none.
func TestGivesUpWithoutSpace(t *testing.T) {
	t.Parallel()
	c := common(t)
	for what, held := range map[string]bool{"an attempt": false, "a place": true} {
		prefix := enginetest.Root(t) + "/" + what[:4]
		w := newWire(t, c, prefix)
		client := w.open(t)
		if held {
			enginetest.Lock(t, newWire(t, c, prefix).open(t), "name")
			findHeld(t, client)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var refusals atomic.Int64
		var full func(context.Context, commit) (*clientv3.TxnResponse, error)
		full = func(context.Context, commit) (*clientv3.TxnResponse, error) {
			w.spoil(full)
			refusals.Add(1)
			return nil, rpctypes.ErrNoSpace
		}
		w.spoil(func(context.Context, commit) (*clientv3.TxnResponse, error) {
			w.spoil(full)
			cancel()
			return nil, errLost
		})
		if _, err := client.Lock(ctx, "name"); !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: %v", what, err)
		}
		enginetest.Await(t, what+" is given up", func() bool { return refusals.Load() > 0 })
		start := time.Now()
		time.Sleep(700 * time.Millisecond)
		if n, took := refusals.Load(), time.Since(start); n > 2*int64(2+took/time.Second) { // two for each time
			t.Errorf("%s: %d refusals within %v", what, n, took)
		}
	}
}

// A place in the wait queue reaches the servers after its waiter has left: it is not taken, as nobody would leave it.
func TestLatePlace(t *testing.T) {
	t.Parallel()
	c := common(t)
	prefix := enginetest.Root(t)
	w := newWire(t, c, prefix)
	client := w.open(t)
	enginetest.Lock(t, newWire(t, c, prefix).open(t), "name")
	findHeld(t, client)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	late := w.lose(cancel)
	if _, err := client.Lock(ctx, "name"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	enginetest.Await(t, "the place is given up", func() bool { clients, _ := w.gates(t, "name"); return clients > 0 })
	if r, err := (<-late)(t.Context()); err != nil || r.Succeeded {
		t.Errorf("a place was taken late: %v", err)
	}
}

// A detached lock whose TTL is over is extended by its id while its client asks for its end: it does not end.
func TestExtendedAsItEnds(t *testing.T) {
	t.Parallel()
	w := newWire(t, common(t), enginetest.Root(t))
	client := w.open(t)
	held := enginetest.Lock(t, client, "name", redlatch.WithTTL(enginetest.Patient.TTL/2), redlatch.WithoutRenewal())
	shots, id := oneshot.New(client), make(chan string, 1)
	defer close(id)
	extended, ended := false, make(chan bool, 1)
	w.spoil(func(ctx context.Context, commit commit) (*clientv3.TxnResponse, error) {
		holder, err := <-id, errLost
		for try := 0; err != nil && try < 30; try++ { // a busy machine may be late
			extended, err = shots.Extend(t.Context(), "name", holder, enginetest.Patient.TTL)
		}
		r, err := commit(t.Context())
		ended <- err == nil && r.Succeeded
		return r, err
	})
	holder, err := held.Detach()
	if err != nil {
		t.Fatal(err)
	}
	id <- holder
	if <-ended || !extended {
		t.Errorf("extended: %t, and ended all the same", extended)
	}
}
