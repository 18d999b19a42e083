package locking

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
)

// lateRepair has one node get the repair of a lock late, as one that hung would, and what follows it.
type lateRepair struct {
	// sent is closed when the repair has come as far as the node.
	sent, goOn chan struct{}
	once       sync.Once
}

// holdRepair holds back the next repair that comes over p.
func holdRepair(p *redistest.Proxy) *lateRepair {
	r := &lateRepair{sent: make(chan struct{}), goOn: make(chan struct{})}
	p.OnCommand(func(c redistest.Command) redistest.Action {
		switch step, _ := locktest.StepOf(c); step {
		case "repair", "repair-all", "repair-shared":
			r.once.Do(func() {
				close(r.sent)
				<-r.goOn
			})
		}
		return redistest.Pass
	})
	return r
}

// A node that hung may give a lock back when its holder is done with it, another has it, or had it. Nothing of the
// former holder is left there, and a waiter gets the lock.
func TestLateRepair(t *testing.T) {
	t.Parallel()
	same := func(name string) string { return name }
	for kind, c := range map[string]struct {
		option, others redlatch.Option
		key            func(name string) string
	}{
		"a lock":        {redlatch.WithLabel(""), redlatch.WithLabel(""), same},
		"several names": {nil, nil, same},
		"a permit":      {redlatch.WithPermits(1), redlatch.WithPermits(1), func(name string) string { return locktest.SlotKey(name, 0) }},
		"a reader":      {redlatch.WithShared(), redlatch.WithLabel(""), same},
	} {
		for order, after := range map[string]func(t *testing.T, holder, other *redlatch.Client, lock *redlatch.Lock, others redlatch.Option, goOn func()){
			"released": func(t *testing.T, _, _ *redlatch.Client, lock *redlatch.Lock, _ redlatch.Option, goOn func()) {
				locktest.Unlock(t, lock)
				goOn()
			},
			"client closed": func(t *testing.T, holder, _ *redlatch.Client, lock *redlatch.Lock, _ redlatch.Option, goOn func()) {
				done := make(chan struct{})
				go func() { holder.Close(); close(done) }()
				locktest.Await(t, "it is closing", func() bool { return lock.Err() != nil })
				goOn()
				<-done
			},
			"a waiter has it": func(t *testing.T, _, other *redlatch.Client, lock *redlatch.Lock, others redlatch.Option, goOn func()) {
				next := waiter(t, other, lock, others)
				goOn()
				locktest.Await(t, "extended", func() bool { return next.Extend(t.Context(), locktest.TTL) == nil })
				locktest.Unlock(t, next)
			},
			"a waiter had it": func(t *testing.T, _, other *redlatch.Client, lock *redlatch.Lock, others redlatch.Option, goOn func()) {
				next := waiter(t, other, lock, others)
				locktest.Unlock(t, next)
				goOn()
			},
			"a waiter of the same client has it": func(t *testing.T, holder, _ *redlatch.Client, lock *redlatch.Lock, others redlatch.Option, goOn func()) {
				next := waiter(t, holder, lock, others)
				goOn()
				locktest.Unlock(t, next)
			},
			"a waiter of the same client had it": func(t *testing.T, holder, _ *redlatch.Client, lock *redlatch.Lock, others redlatch.Option, goOn func()) {
				next := waiter(t, holder, lock, others)
				locktest.Unlock(t, next)
				goOn()
			},
			"waiters in turn": func(t *testing.T, holder, other *redlatch.Client, lock *redlatch.Lock, others redlatch.Option, goOn func()) {
				var waiting []<-chan locktest.Outcome
				for i := range 4 {
					report, waits := locktest.WhenWaiting(nil)
					waiting = append(waiting, locktest.LockIn(t.Context(), []*redlatch.Client{other, holder}[i%2], lock.Name(), others, report))
					<-waits
				}
				locktest.Unlock(t, lock)
				for i := range 4 {
					var o locktest.Outcome
					select {
					case o = <-waiting[0]:
					case o = <-waiting[1]:
					case o = <-waiting[2]:
					case o = <-waiting[3]:
					case <-time.After(locktest.Patience):
						t.Fatal("nobody gets it")
					}
					if o.Err != nil {
						t.Fatal(o.Err)
					}
					if i == 1 {
						goOn()
					}
					locktest.Unlock(t, o.Lock)
				}
			},
		} {
			t.Run(kind+"/"+order, func(t *testing.T) {
				t.Parallel()
				nodes := locktest.Shared(t, 3)
				proxies := redistest.Proxies(t, nodes)
				config := locktest.Config(locktest.ProxyURLs(proxies)...)
				config.NodeTimeout = 300 * time.Millisecond
				holder := locktest.Open(t, config)
				other := locktest.Open(t, locktest.Through(config, redistest.URLs(nodes)...))
				c := c
				if c.option == nil {
					c.option = redlatch.WithAlso(t.Name() + "/also")
					c.others = c.option
				}
				name, key, readers := t.Name(), c.key(t.Name()), node.ReadersKey(t.Name())
				for at, s := range nodes {
					lock := locktest.TryLock(t, holder, name, c.option, redlatch.WithoutRenewal())
					locktest.Await(t, "all nodes have it", func() bool {
						return lock.Extend(t.Context(), locktest.TTL) == nil && !slices.ContainsFunc(nodes, func(s *redistest.Server) bool { return locktest.Value(t, s, key) == "" })
					})
					late := holdRepair(proxies[at])
					goOn := sync.OnceFunc(func() { close(late.goOn) })
					t.Cleanup(goOn)
					locktest.Do(t, s, append([]string{"DEL", key, readers}, lock.Names()[1:]...)...)
					locktest.Await(t, "the key is about to be given back", func() bool {
						if err := lock.Extend(t.Context(), locktest.TTL); err != nil && !locktest.Late(err) {
							t.Fatal(err)
						}
						select {
						case <-late.sent:
							return true
						case <-time.After(time.Millisecond):
							return false
						}
					})
					after(t, holder, other, lock, c.others, goOn)
					for _, s := range nodes {
						for _, k := range append([]string{key, readers}, lock.Names()[1:]...) {
							locktest.Await(t, "nothing is left", func() bool { return locktest.Do(t, s, "EXISTS", k) == int64(0) })
						}
					}
					proxies[at].OnCommand(nil)
					if lock.Err() == nil {
						t.Error("still held")
					}
					if order == "client closed" {
						return
					}
				}
			})
		}
	}
}

// waiter unlocks and returns the lock of one that waited.
func waiter(t *testing.T, client *redlatch.Client, lock *redlatch.Lock, option redlatch.Option) *redlatch.Lock {
	t.Helper()
	report, waits := locktest.WhenWaiting(nil)
	next := locktest.LockIn(t.Context(), client, lock.Name(), option, report)
	<-waits
	locktest.Unlock(t, lock)
	o := <-next
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	return o.Lock
}
