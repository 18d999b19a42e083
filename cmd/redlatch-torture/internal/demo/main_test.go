//go:build unix

package demo

import (
	"fmt"
	"os"
	"testing"
)

// TestMain runs a hidden command instead of the tests if the test binary was started with its
// name, as the code under test starts itself for its processes.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 {
		var err error
		switch os.Args[1] {
		case WorkerCommand:
			err = Work(os.Stdin, os.Stdout)
		case NodeCommand:
			err = Serve(os.Stdin, os.Stdout)
		default:
			os.Exit(m.Run())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
