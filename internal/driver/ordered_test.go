package driver_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/redlatch/redlatch/internal/driver"
)

// Commands on one key that are sent in different ways are sent one after the other, also when the
// caller of the first has left.
func TestOrderedKeepsOneOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		send := func(_ context.Context, args []string) (driver.Reply, error) {
			sent = append(sent, args[0])
			return driver.Reply{}, nil
		}
		o := driver.NewOrdered(send)
		answer := make(chan struct{})
		ctx, leave := context.WithCancel(t.Context())
		go o.DoBy(ctx, func(ctx context.Context, args []string) (driver.Reply, error) {
			<-answer
			return send(ctx, args)
		}, "EVALSHA", "sha", "1", "k")
		synctest.Wait()
		leave()
		synctest.Wait()
		go o.Do(t.Context(), "DEL", "k")
		go o.Do(t.Context(), "GET", "other")
		synctest.Wait()
		close(answer)
		o.Drain("")
		o.Close()
		if want := []string{"GET", "EVALSHA", "DEL"}; !slices.Equal(sent, want) {
			t.Errorf("sent %v, want %v", sent, want)
		}
	})
}
