//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "redlatch-torture" {
		// What was ignored as the tests were started is not for what they start.
		for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
			if signal.Ignored(sig) {
				signal.Notify(make(chan os.Signal, 1), sig)
			}
		}
	}
	testscript.Main(m, map[string]func(){"redlatch-torture": main})
}

// limit ends a test that would hang. It does not measure speed.
const limit = 3 * time.Minute

// TestScript runs the scripts in testdata/script, each of which runs the real program. Besides
// testscript's own commands the scripts have:
//
//	nodes N                 start N servers, n1 to nN, and put their URLs into REDLATCH_NODES
//	redis NODE WANT CMD...  send a command to a server; the reply must match the pattern WANT
//	exits CODE CMD...       run a program, which must exit with CODE
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Values[serversKey{}] = make(map[string]*redistest.Server)
			// Otherwise each process sleeps for 1 s at its end under the race detector.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"nodes": nodes, "redis": redis, "exits": exits},
	})
}

type serversKey struct{}

func servers(ts *testscript.TestScript) map[string]*redistest.Server {
	return ts.Value(serversKey{}).(map[string]*redistest.Server)
}

func nodes(ts *testscript.TestScript, neg bool, args []string) {
	count, err := strconv.Atoi(args[0])
	ts.Check(err)
	started, err := redistest.StartNodes(context.Background(), count, redistest.Options{})
	ts.Check(err)
	for i, server := range started {
		ts.Defer(func() { server.Close() })
		servers(ts)[fmt.Sprint("n", i+1)] = server
	}
	ts.Setenv("REDLATCH_NODES", strings.Join(redistest.URLs(started), ","))
}

func redis(ts *testscript.TestScript, neg bool, args []string) {
	reply, err := servers(ts)[args[0]].Do(args[2:]...)
	ts.Check(err)
	if ok, err := regexp.MatchString("^(?:"+args[1]+")$", fmt.Sprint(reply)); err != nil || !ok {
		ts.Fatalf("%s: want %s, got %v", strings.Join(args[2:], " "), args[1], reply)
	}
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if code != want {
		ts.Fatalf("%s: exit code %d, want %d", strings.Join(args[1:], " "), code, want)
	}
}
