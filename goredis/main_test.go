package goredis

import (
	"flag"
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
)

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "8") // the tests mostly wait; the command line goes before it
	logging.Disable()              // it says so of each dial that fails
	os.Exit(m.Run())
}
