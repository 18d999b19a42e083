package doctor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A server, one that is asked which masters its Cluster has, or a master hangs as soon as it is connected to. Examine waits
// for it no longer than its ctx.
func TestExamineANodeThatHangs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ what, parameter, hangs string }{
		{"a server", "", "INFO"}, {"a seed", "?cluster", "CLUSTER NODES"}, {"a master", "?cluster", "INFO"},
	} {
		var fake *redistest.Fake
		fake = redistest.NewFake(t, "", func(command redistest.Command) string {
			port := strings.TrimPrefix(fake.Addr(), "127.0.0.1:")
			switch text := strings.Join(command.Args, " "); {
			case strings.HasPrefix(text, c.hangs):
				return ""
			case command.Name() == "HELLO":
				return redistest.Helloed
			case text == "CLUSTER NODES":
				return "+id 127.0.0.1:" + port + "@1 myself,master - 0 0 1 connected 0-16383\r\n"
			case text == "CLUSTER SLOTS":
				return "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$0\r\n\r\n:" + port + "\r\n$2\r\nid\r\n"
			}
			return "+OK\r\n"
		})
		locktest.Soon(t, c.what, 800*time.Millisecond, func(int) time.Duration {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			start := time.Now()
			reports, err := doctor.Examine(ctx, locktest.Config(fake.URL()+c.parameter))
			took := time.Since(start)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(reports[0].Err, reports[0].Reason); !strings.Contains(got, "did not answer in time") {
				t.Errorf("%s: %s", c.what, got)
			}
			return took
		})
	}
}
