package waiting

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// Where somebody is always queued the lock is free all the same, from each release until
// the one who is woken up has taken it, for callers who are not queued: another library, or one
// WithoutQueue.
func TestQueueStarvesNobody(t *testing.T) {
	t.Parallel()
	server := locktest.Shared(t, 1)[0]
	c := locktest.Config(server.URL())
	busy, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	const clients, callers = 3, 2
	for range clients {
		client := locktest.Open(t, c)
		for range callers {
			go func() {
				for {
					lock, err := client.Lock(busy, t.Name())
					if err != nil {
						ended <- err
						return
					}
					time.Sleep(200 * time.Microsecond)
					if err := lock.Unlock(busy); err != nil {
						t.Error(err)
					}
				}
			}()
		}
	}
	const often = 10 // more than by chance before the queue has formed
	ctx := locktest.Within(t, 5*locktest.Patience)
	for got := 0; got < often; time.Sleep(time.Millisecond) {
		if reply, err := server.Do("SET", t.Name(), "another", "NX", "PX", "10000"); err != nil {
			t.Fatal(err)
		} else if reply == "OK" {
			got++
			if _, err := server.Do("DEL", t.Name()); err != nil {
				t.Fatal(err)
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("another library got the lock %d times", got)
		}
	}
	one := locktest.Open(t, c)
	for got := 0; got < often; {
		soon, end := context.WithTimeout(ctx, 200*time.Millisecond) // or its tries become rare
		lock, err := one.Lock(soon, t.Name(), redlatch.WithoutQueue())
		end()
		if err == nil {
			got++
			locktest.Unlock(t, lock)
		}
		if ctx.Err() != nil {
			t.Fatalf("one who does not queue got the lock %d times: %v", got, err)
		}
	}
	stop()
	for range clients * callers {
		<-ended
	}
}
