//go:build unix

package engine

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/oneshot"
)

// limit ends a test that would hang. It does not measure speed.
const limit = 60 * time.Second

// An ensemble gives a lock, Left finds its keys, another server leads after the leader was killed,
// and Close leaves no process and no file behind.
func TestEnsemble(t *testing.T) {
	for _, e := range []Engine{Zookeeper, Etcd} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			if err := e.Missing(); err != nil {
				t.Skip(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			all, err := Start(ctx, e, Direct, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer all.Close()
			leader, err := all.Leader(ctx)
			if err != nil {
				t.Fatal(err)
			}
			addrs := []string{all.Servers[0].Addr(), all.Servers[1].Addr(), all.Servers[2].Addr()}
			client, err := e.Open(redlatch.Config{TTL: 10 * time.Second}, addrs, "/locks")
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			left := func(want bool) {
				t.Helper()
				if got, err := all.Left(ctx, leader, "/locks", []string{"a/b:c", "never"}); err != nil || got["a/b:c"] != want || got["never"] {
					t.Errorf("left behind: %v, %v", got, err)
				}
			}
			lock, err := client.Lock(ctx, "a/b:c")
			if err != nil {
				t.Fatal(err)
			}
			left(true)
			if err := lock.Unlock(ctx); err != nil {
				t.Fatal(err)
			}
			left(false)
			// What an attempt that was given up leaves until the client closes is no lock's.
			if _, err := oneshot.New(client).Release(ctx, "a/b:c", "nobody's"); err != nil {
				t.Fatal(err)
			}
			left(false)

			all.Servers[leader].Kill()
			for next, err := all.Leader(ctx); err != nil || next == leader; next, err = all.Leader(ctx) {
				if ctx.Err() != nil {
					t.Fatal(err)
				}
			}
			if err := all.Servers[leader].Start(); err != nil {
				t.Fatal(err)
			}
			if err := all.Await(ctx); err != nil {
				t.Fatal(err)
			}
			pids := []int{all.Servers[0].PID(), all.Servers[1].PID(), all.Servers[2].PID()}
			if err := all.Servers[1].Pause(); err != nil {
				t.Fatal(err)
			}
			for all.Servers[1].Serving(ctx) { // the threads of the process stop one after the other
				if ctx.Err() != nil {
					t.Fatal("a server that stands still serves")
				}
			}
			client.Close()
			if err := all.Close(); err != nil {
				t.Fatal(err)
			}
			for _, pid := range pids {
				if !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
					t.Errorf("process %d is still there", pid)
				}
			}
			if _, err := os.Stat(all.dir); err == nil {
				t.Errorf("%s is still there", all.dir)
			}
		})
	}
}
