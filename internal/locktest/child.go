package locktest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// What a child process is told by its environment.
const (
	ChildNodes      = "REDLATCH_TEST_CHILD_NODES"
	ChildDeployment = "REDLATCH_TEST_CHILD_DEPLOYMENT"
	ChildName       = "REDLATCH_TEST_CHILD_NAME"
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
		Nodes:        strings.Fields(os.Getenv(ChildNodes)),
		Deployment:   os.Getenv(ChildDeployment),
		NoQuarantine: true,
		TTL:          childTTL,
		MaxTTL:       TTL,
		NodeTimeout:  childTTL / 10,
	})
	if err != nil {
		fail(err)
	}
	lock, err := client.TryLock(context.Background(), os.Getenv(ChildName))
	for start := time.Now(); err != nil && time.Since(start) < Patience; { // nobody else wants it
		lock, err = client.TryLock(context.Background(), os.Getenv(ChildName))
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

// Child is a process that has a lock, and its two ends.
type Child struct {
	*exec.Cmd
	In  io.WriteCloser
	out *bufio.Reader
}

// StartChild starts a process that takes the lock name, and ends with the test.
func StartChild(t *testing.T, c redlatch.Config, name string, env ...string) *Child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(),
		ChildNodes+"="+strings.Join(c.Nodes, " "), ChildDeployment+"="+c.Deployment, ChildName+"="+name)
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
	return &Child{cmd, in, bufio.NewReader(out)}
}

// Says returns the child's next line.
func (p *Child) Says(t *testing.T) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the child said %q: %v", line, err)
	}
	return strings.TrimSpace(line)
}
