package redlatchtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
)

// A client has 256 attempts under way. A caller beyond waits for one of them to end: its time begins only then, and its
// token, too. If its ctx ends before, or the client is closed, the error says what it waited for.
func TestManyAttempts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const answer, ttl = 200 * time.Millisecond, 10 * time.Second
		locks := New(t, redlatch.Config{NodeTimeout: time.Second})
		locks.Delay(answer)
		var callers sync.WaitGroup
		many := func() {
			for i := range 256 {
				callers.Go(func() {
					if _, err := locks.TryLock(t.Context(), fmt.Sprint(time.Now(), i)); err != nil && !errors.Is(err, redlatch.ErrClosed) {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
		}
		many()
		ctx, cancel := context.WithTimeout(t.Context(), answer/2)
		defer cancel()
		_, err := locks.TryLock(ctx, "in a hurry")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, redlatch.ErrNoQuorum) || !strings.Contains(err.Error(), "256 attempts of this client are under way") {
			t.Errorf("in a hurry: %v", err)
		}

		called := time.Now() // half an answer after the others
		lock, err := locks.TryLock(t.Context(), "patient", redlatch.WithTTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		began := called.Add(answer / 2)
		if took := time.Since(began); took < answer || took > answer+answer/4 {
			t.Errorf("it was granted %v after the first answers", took)
		}
		if validity := lock.Until().Sub(began); validity < ttl*97/100 || validity > ttl {
			t.Errorf("it is valid for %v from when it began", validity)
		}
		if token := time.UnixMicro(int64(lock.Token())); token.Before(began) {
			t.Errorf("its token is from %v before it began", began.Sub(token))
		}
		callers.Wait()

		many()
		closed := make(chan error, 1)
		go func() {
			_, err := locks.Lock(t.Context(), "late")
			closed <- err
		}()
		synctest.Wait()
		locks.Close()
		if err := <-closed; !errors.Is(err, redlatch.ErrClosed) || !strings.Contains(err.Error(), "256 attempts") {
			t.Errorf("late: %v", err)
		}
		callers.Wait()
	})
}
