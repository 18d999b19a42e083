package redlatch_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// What a child process is told by its environment.
const (
	childNodes      = "REDLATCH_TEST_CHILD_NODES"
	childDeployment = "REDLATCH_TEST_CHILD_DEPLOYMENT"
	childName       = "REDLATCH_TEST_CHILD_NAME"
	childTTL        = 3 * time.Second
)

// child is the program of a child process: it acquires one lock, says so, and
// at each line on its input says what it knows of it.
func child() {
	fail := func(err error) {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	client, err := redlatch.Open(redlatch.Config{
		Nodes:        strings.Fields(os.Getenv(childNodes)),
		Deployment:   os.Getenv(childDeployment),
		NoQuarantine: true,
		TTL:          childTTL,
		NodeTimeout:  childTTL / 10,
	})
	if err != nil {
		fail(err)
	}
	lock, err := client.TryLock(context.Background(), os.Getenv(childName))
	for start := time.Now(); err != nil && time.Since(start) < patience; { // nobody else wants it
		lock, err = client.TryLock(context.Background(), os.Getenv(childName))
	}
	if err != nil {
		fail(err)
	}
	ctx := lock.Context()
	fmt.Println("held")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		// The first look at the lock is the one that was asked for.
		var state, done, cause error
		looks := map[string]func(){
			"err":   func() { state = lock.Err() },
			"ctx":   func() { done = ctx.Err() },
			"cause": func() { cause = context.Cause(ctx) },
		}
		looks[in.Text()]()
		first := errors.Join(state, done, cause)
		state, done, cause = lock.Err(), ctx.Err(), context.Cause(ctx)
		extended := lock.Extend(context.Background(), childTTL)
		released := lock.Unlock(context.Background())
		fmt.Print(first != nil, "; ")
		for _, err := range []error{state, done, cause, extended, released} {
			fmt.Print(errors.Is(err, redlatch.ErrLost), " ", errors.Is(err, context.Canceled), "; ")
		}
		fmt.Println()
	}
	client.Close()
}

// childProcess is a child process and its two ends.
type childProcess struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startChild(t *testing.T, c redlatch.Config, name string, env ...string) *childProcess {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(),
		childNodes+"="+strings.Join(c.Nodes, " "), childDeployment+"="+c.Deployment, childName+"="+name)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return &childProcess{cmd, in, bufio.NewReader(out)}
}

// says returns the child's next line.
func (p *childProcess) says(t *testing.T) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the child said %q: %v", line, err)
	}
	return strings.TrimSpace(line)
}

// A process is stopped for longer than its TTL and runs on: it finds its lock
// lost before it does anything with it, and does not extend it back to life,
// whether the lock is free or somebody else's by then.
func TestStoppedProcessFindsItsLockLost(t *testing.T) {
	t.Parallel()
	for look, taken := range map[string]bool{"err": true, "ctx": false, "cause": false} {
		t.Run(fmt.Sprintf("%s taken=%t", look, taken), func(t *testing.T) {
			t.Parallel()
			nodes := shared(t, 3)
			c := config(redistest.URLs(nodes)...)
			p := startChild(t, c, t.Name())
			if said := p.says(t); said != "held" {
				t.Fatal(said)
			}
			for _, s := range nodes {
				await(t, "the child's lock is on all nodes", func() bool { return value(t, s, t.Name()) != "" })
			}
			if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			for _, s := range nodes {
				awaitValue(t, s, t.Name(), "")
			}
			next := ""
			if taken {
				client := open(t, c)
				lock, err := client.Lock(within(t, patience), t.Name())
				if err != nil {
					t.Fatal(err)
				}
				defer unlock(t, lock)
				next = value(t, nodes[0], t.Name())
			}
			// The question is there before the child runs on.
			if _, err := fmt.Fprintln(p.in, look); err != nil {
				t.Fatal(err)
			}
			if err := p.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			said := p.says(t)
			if want := "true; true false; false true; true false; true false; true false;"; said != want {
				t.Errorf("whether the first look told; lost or canceled, of Err, Context.Err, Cause, Extend, Unlock:\n got %s\nwant %s", said, want)
			}
			p.in.Close()
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
			for i, s := range nodes {
				if got := value(t, s, t.Name()); got != next {
					t.Errorf("node %d has %q, want %q", i, got, next)
				}
			}
		})
	}
}
