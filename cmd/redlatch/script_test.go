//go:build unix

package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	commands := map[string]func(){"redlatch": main, "probe": probe, "headless": headless, "lost-start": lostStart}
	if commands[filepath.Base(os.Args[0])] == nil {
		// A test that runs a command in its own process has it start this program again,
		// as a guard or a keeper.
		if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
			main()
		}
		runsMain = true
		// Under the race detector a process would sleep for 1 s at its end.
		os.Setenv("GORACE", "atexit_sleep_ms=0")
		// What was ignored as the tests were started is not for what they start.
		for _, sig := range stopping {
			if inheritedIgnored(sig) {
				signal.Notify(make(chan os.Signal, 1), sig)
			}
		}
	}
	testscript.Main(m, commands)
}

// limit is how long a script waits for something that has to happen. It is no
// measure of speed: it only ends a test that would hang.
const limit = 3 * time.Minute

// TestScript runs the scripts in testdata/script: each runs the real program on
// real servers. Besides testscript's own commands they have:
//
//	nodes N [password]      start N servers: $n1 to $nN are their URLs, and
//	                        REDLATCH_NODES all of them
//	cluster N               start a Cluster of N masters, which is REDLATCH_NODES
//	pause|resume NODE       stop a server by SIGSTOP, continue it
//	kill-node NODE          kill a server
//	partition NODE          cut a server off from clients, not from the script
//	slow-reads NODE...      delay each look at a key of these nodes, and to no others
//	redis NODE WANT CMD...  send a command; its reply must match WANT
//	[!] locked NODE LOCK    whether the lock's key is there, or gone, now or a little later
//	free LOCK NODE...       whether most nodes do not have it
//	forget LOCK NODE...     delete it on all of them at once
//	await-locked NODE LOCK  wait until it is
//	expiry NODE LOCK FILE   wait until the key is gone; write when it was to
//	                        expire, in ms since 1970
//
//	exits CODE CMD...       run a command, which must exit with CODE
//	start PROC CMD...       run a command in the background; its output goes to
//	                        PROC.out and PROC.err
//	ends CODE PROC...       wait for background commands, which must exit with CODE
//	signal SIG PROC|FILE    send a signal to a background command, or to the pid
//	                        in the file; FILE@ means its process group
//	guard-of PROC FILE      write the pid of its guard process
//	parent-of PROC FILE     write the pid of COMMAND's parent process
//	died SIG PROC           expect that a background command has died of a signal
//	await FILE [PATTERN]    wait until the file has a line, or one that matches
//	await-gone FILE...      wait until the processes with these pids have ended
//	await-reaped FILE...    wait until somebody has waited for them, too
//	await-stopped FILE...   wait until they are stopped
//	[!] running FILE...     whether they have not
//	less FILE1 FILE2        compare the numbers on the last lines
func TestScript(t *testing.T) { testscript.Run(t, scripts("testdata/script")) }

// scripts are those in a folder, with the commands of TestScript.
func scripts(dir string) testscript.Params {
	return testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			w := newWorld()
			env.Values[worldKey{}] = w
			env.Defer(w.close)
			// Where the servers are is the subject of few scripts; the fence is
			// that of one.
			env.Setenv("REDLATCH_NO_QUARANTINE", "true")
			env.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		},
		// root, without which some of the system cannot be changed.
		Condition: func(condition string) (bool, error) {
			if condition != "root" {
				return false, fmt.Errorf("unknown condition %q", condition)
			}
			return os.Getuid() == 0, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"nodes":        nodes,
			"cluster":      cluster,
			"pause":        pause,
			"resume":       resume,
			"kill-node":    killNode,
			"partition":    partition,
			"slow-reads":   slowReads,
			"redis":        redis,
			"locked":       locked,
			"await-locked": awaitLocked,
			"free":         free,
			"forget":       forget,
			"expiry":       expiry,

			"exits":         exits,
			"start":         startProcess,
			"ends":          ends,
			"signal":        sendSignal,
			"guard-of":      hiddenProcess("guard-process"),
			"parent-of":     hiddenProcess("parent-process"),
			"await":         await,
			"died":          died,
			"await-gone":    awaitGone,
			"await-reaped":  awaitReaped,
			"await-stopped": awaitStopped,
			"running":       running,
			"less":          less,
		},
	}
}

type worldKey struct{}

// world is what one script has started.
type world struct {
	nodes     map[string]*node
	started   []*node // also those whose names others have now
	processes map[string]*process
}

func newWorld() *world {
	return &world{nodes: make(map[string]*node), processes: make(map[string]*process)}
}

func worldOf(ts *testscript.TestScript) *world { return ts.Value(worldKey{}).(*world) }

// add gives the node its name in the script.
func (w *world) add(name string, n *node) {
	w.nodes[name] = n
	w.started = append(w.started, n)
}

// close ends the processes first: the servers' ends would disturb them.
func (w *world) close() {
	for _, p := range w.processes {
		p.end()
	}
	for _, n := range w.started {
		n.close()
	}
}

// eventually waits for a condition that nothing tells of.
func eventually(ts *testscript.TestScript, what string, holds func() bool) {
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("after %v: not yet: %s", limit, what)
		}
	}
}

func arguments(ts *testscript.TestScript, args []string, least int, usage string) {
	if len(args) < least {
		ts.Fatalf("usage: %s", usage)
	}
}

// less compares the numbers on the last lines of two files.
func less(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, args, 2, "less FILE1 FILE2")
	var numbers [2]int64
	for i := range numbers {
		lines := strings.Fields(ts.ReadFile(args[i]))
		if len(lines) == 0 {
			ts.Fatalf("%s is empty", args[i])
		}
		n, err := strconv.ParseInt(lines[len(lines)-1], 10, 64)
		ts.Check(err)
		numbers[i] = n
	}
	if (numbers[0] < numbers[1]) == neg {
		ts.Fatalf("%s has %d, %s has %d: %d apart", args[0], numbers[0], args[1], numbers[1], numbers[1]-numbers[0])
	}
	ts.Logf("%d apart", numbers[1]-numbers[0])
}

func readable(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(text)
}
