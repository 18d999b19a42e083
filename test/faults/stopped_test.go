//go:build unix

package faults

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A process is stopped for longer than its TTL and runs on: it finds its lock
// lost before it does anything with it, and does not extend it back to life,
// whether the lock is free or somebody else's by then.
func TestStoppedProcessFindsItsLockLost(t *testing.T) {
	t.Parallel()
	for look, taken := range map[string]bool{"err": true, "ctx": false, "cause": false} {
		t.Run(fmt.Sprintf("%s taken=%t", look, taken), func(t *testing.T) {
			t.Parallel()
			nodes := locktest.Shared(t, 3)
			c := locktest.Config(redistest.URLs(nodes)...)
			on := func(id string) (n int) {
				for _, s := range nodes {
					if v := locktest.Value(t, s, t.Name()); v != "" && (v == id || id == "") {
						n++
					}
				}
				return n
			}
			var p *locktest.Child
			locktest.Await(t, "a child's lock is on all nodes", func() bool {
				if on("") == 0 { // on a busy machine the one before may not have renewed it in time
					p = locktest.StartChild(t, c, t.Name())
					if said := p.Says(t); said != "held" {
						t.Fatal(said)
					}
				}
				return on("") == len(nodes)
			})
			if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			for _, s := range nodes {
				locktest.AwaitValue(t, s, t.Name(), "")
			}
			next := ""
			if taken {
				client := locktest.Open(t, c)
				lock, err := client.Lock(locktest.Within(t, locktest.Patience), t.Name())
				if err != nil {
					t.Fatal(err)
				}
				defer locktest.Unlock(t, lock)
				next = hook.LeaseOf(lock).HolderID()
				locktest.Await(t, "all nodes have the next one's", func() bool {
					if on(next) < len(nodes) { // a busy machine's node was late, and is given it by an extension
						_ = lock.Extend(t.Context(), c.TTL)
					}
					return on(next) == len(nodes)
				})
			}
			// The question is there before the child runs on.
			if _, err := fmt.Fprintln(p.In, look); err != nil {
				t.Fatal(err)
			}
			if err := p.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			said := p.Says(t)
			if want := "true; true false; false true; true false; true false; true false;"; said != want {
				t.Errorf("whether the first look told; lost or canceled, of Err, Context.Err, Cause, Extend, Unlock:\n got %s\nwant %s", said, want)
			}
			p.In.Close()
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
			for i, s := range nodes {
				if got := locktest.Value(t, s, t.Name()); got != next {
					t.Errorf("node %d has %q, want %q", i, got, next)
				}
			}
		})
	}
}
