package guides

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// transfer has nobody else touch either account while move runs. Its token is larger than all earlier
// ones of both.
func transfer(ctx context.Context, client *redlatch.Client, from, to string, move func(ctx context.Context, token uint64) error) (err error) {
	lock, err := client.LockAll(ctx, []string{from, to})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock(ctx)) }() // ErrLost if it was lost meanwhile
	return move(lock.Context(), lock.Token())
}

// view reads the catalogue, with others who do, and while nobody publishes a new one.
func view(ctx context.Context, client *redlatch.Client, read func(ctx context.Context) error) error {
	return client.Do(ctx, "catalogue", read, redlatch.WithShared())
}

// publish changes the catalogue while nobody reads it.
func publish(ctx context.Context, client *redlatch.Client, write func(ctx context.Context) error) error {
	return client.Do(ctx, "catalogue", write)
}

// convert runs in three places at a time, each of which has a directory of its own.
func convert(ctx context.Context, client *redlatch.Client, in func(ctx context.Context, directory int, token uint64) error) (err error) {
	lock, err := client.Acquire(ctx, "converter", 3)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock(ctx)) }() // ErrLost if it was lost meanwhile
	return in(lock.Context(), lock.Slot(), lock.Token())
}

// share does one worker's share of the work on import/7.
func share(ctx context.Context, client *redlatch.Client, work func(ctx context.Context) error) error {
	return client.Do(ctx, "import/7", work, redlatch.WithShared())
}

// awaitAll returns when all who had begun have returned from work, or died.
func awaitAll(ctx context.Context, client *redlatch.Client) error {
	lock, err := client.Lock(ctx, "import/7")
	if err != nil {
		return err
	}
	return lock.Unlock(ctx)
}

// save may be called by who has the lock already, and by who has not.
func save(ctx context.Context, client *redlatch.Client, name string, work func(ctx context.Context) error) error {
	if _, held := redlatch.Held(ctx, name); held {
		return work(ctx)
	}
	return client.Do(ctx, name, work)
}

// What the page says of each is so: sets in any order, readers together and without a writer, three
// permits, a wait for all who work, and a lock that is asked for within itself.
func TestPrimitives(t *testing.T) {
	t.Parallel()
	client := locktest.Open(t, locktest.Config(redistest.URLs(locktest.Shared(t, 3))...))
	ctx, cancel := context.WithTimeout(t.Context(), locktest.Patience)
	defer cancel()
	ended := make(chan error, 10)
	await := func(n int) {
		t.Helper()
		for range n {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}

	var moving atomic.Int32
	var largest uint64 // by those who move, one at a time
	for range 3 {
		for _, names := range [][2]string{{"account/a", "account/b"}, {"account/b", "account/a"}} {
			go func() {
				ended <- transfer(ctx, client, names[0], names[1], func(_ context.Context, token uint64) error {
					if n := moving.Add(1); n != 1 || token <= largest {
						t.Errorf("%d move, token %d after %d", n, token, largest)
					}
					largest = token
					moving.Add(-1)
					return nil
				})
			}()
		}
	}
	await(6)

	reading, finish := make(chan struct{}), make(chan struct{})
	var readers atomic.Int32
	for range 2 {
		go func() {
			ended <- view(ctx, client, func(context.Context) error {
				readers.Add(1)
				reading <- struct{}{}
				<-finish
				readers.Add(-1)
				return nil
			})
		}()
	}
	<-reading
	<-reading // both
	go func() {
		ended <- publish(ctx, client, func(context.Context) error {
			if n := readers.Load(); n != 0 {
				t.Errorf("%d read while one writes", n)
			}
			return nil
		})
	}()
	close(finish)
	await(3)

	var directories [3]atomic.Bool
	for range 7 {
		go func() {
			ended <- convert(ctx, client, func(_ context.Context, directory int, _ uint64) error {
				if directories[directory].Swap(true) {
					t.Errorf("two in directory %d", directory)
				}
				directories[directory].Store(false)
				return nil
			})
		}()
	}
	await(7)

	var working atomic.Int32
	begun, goOn := make(chan struct{}), make(chan struct{})
	for range 3 {
		go func() {
			ended <- share(ctx, client, func(context.Context) error {
				working.Add(1)
				begun <- struct{}{}
				<-goOn
				working.Add(-1)
				return nil
			})
		}()
	}
	for range 3 {
		<-begun
	}
	close(goOn)
	if err := awaitAll(ctx, client); err != nil || working.Load() != 0 {
		t.Errorf("%d work on: %v", working.Load(), err)
	}
	await(3)

	times := 0
	err := client.Do(ctx, "file", func(ctx context.Context) error {
		if err := client.Do(ctx, "file", func(context.Context) error { return nil }); !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("it waits for itself: %v", err)
		}
		return save(ctx, client, "file", func(context.Context) error { times++; return nil })
	})
	err = errors.Join(err, save(ctx, client, "file", func(context.Context) error { times++; return nil }))
	if err != nil || times != 2 {
		t.Errorf("%d times: %v", times, err)
	}
}
