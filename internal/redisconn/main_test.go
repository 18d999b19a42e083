package redisconn

import (
	"flag"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "8") // the tests mostly wait; the command line goes before it
	os.Exit(m.Run())
}
