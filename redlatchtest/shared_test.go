package redlatchtest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// All readers of the lock lose it at once, and a writer who waits gets it.
func TestLoseOfReaders(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{})
		peer := locks.Peer(redlatch.Config{})
		var readers []*redlatch.Lock
		for _, client := range []*Client{locks, locks, peer} {
			lock, err := client.RLock(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			readers = append(readers, lock)
		}
		if holder := locks.Held()["a"]; !holder.Shared {
			t.Errorf("readers have it, held by %+v", holder)
		}
		out := locktest.LockIn(t.Context(), peer, "a")
		synctest.Wait()
		began := time.Now()
		locks.Lose("a")
		for i, lock := range readers {
			if err := context.Cause(lock.Context()); !errors.Is(err, redlatch.ErrLost) {
				t.Errorf("reader %d: %v", i, err)
			}
		}
		if o := <-out; o.Err != nil || time.Since(began) > 0 {
			t.Errorf("the writer after %v: %v", time.Since(began), o.Err)
		}
	})
}

// Wake-ups that are under way together are late by the delay, each of them.
func TestDelayOfWakeUps(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const late, readers = 20 * time.Millisecond, 20
		locks := New(t, redlatch.Config{})
		release := locks.HoldByAnother("a")
		var outs []<-chan locktest.Outcome
		for range readers {
			out := make(chan locktest.Outcome, 1)
			go func() {
				lock, err := locks.RLock(t.Context(), "a")
				out <- locktest.Outcome{Lock: lock, Err: err}
			}()
			outs = append(outs, out)
		}
		time.Sleep(time.Second)
		locks.Delay(late)
		began := time.Now()
		release()
		for _, out := range outs {
			if o := <-out; o.Err != nil {
				t.Fatal(o.Err)
			}
		}
		// One wake-up, and the steps of each reader beside those of the others.
		if took := time.Since(began); took > 3*late {
			t.Errorf("it took %v", took)
		}
	})
}

// A writer who waits for a reader of its own process that came by one try keeps out readers who come later, as any other.
func TestWriterBehindATriedReader(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		locks := New(t, redlatch.Config{})
		reader, err := locks.TryLock(t.Context(), "x", redlatch.WithShared())
		if err != nil {
			t.Fatal(err)
		}
		writer := make(chan error)
		go func() {
			_, err := locks.Lock(t.Context(), "x")
			writer <- err
		}()
		synctest.Wait()
		if _, err := locks.Peer(redlatch.Config{}).TryLock(t.Context(), "x", redlatch.WithShared()); !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("a reader who comes later: %v", err)
		}
		if err := reader.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-writer; err != nil {
			t.Error(err)
		}
	})
}

// More readers wait than are woken up at once. Who was not woken up keeps the place, and no writer who came later goes first.
func TestManyReadersBeforeAWriter(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const readers = 300
		locks := New(t, redlatch.Config{})
		first, err := locks.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		var read atomic.Int32
		var all sync.WaitGroup
		for range readers {
			all.Go(func() {
				lock, err := locks.RLock(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				read.Add(1)
				lock.Unlock(t.Context())
			})
		}
		time.Sleep(time.Second)
		writer := locktest.LockIn(t.Context(), locks.Peer(redlatch.Config{}), "a")
		time.Sleep(time.Second)
		if err := first.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if o := <-writer; o.Err != nil || read.Load() < readers {
			t.Errorf("the writer, with %v, was before %d of %d readers", o.Err, readers-read.Load(), readers)
		} else if err := o.Lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		all.Wait()
	})
}
