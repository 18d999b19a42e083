package guardtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fence"
	"github.com/redlatch/redlatch/internal/redistest"
)

// The two clients' TTLs: short for the one that is stopped, as the other waits for its end; long for the other, which
// must not lose its lock because the machine is slow.
const (
	stoppedTTL = 3 * time.Second
	otherTTL   = time.Minute
	// patience bounds what must happen; it says nothing about how fast.
	patience = 2 * time.Minute
)

// task is what the process of client 1 is told, as JSON in its environment.
type task struct {
	Nodes   []string
	Lock    string // the name
	Place   string // a key of places
	Address string // of the resource there
	Guarded bool
}

const taskEnv = "GUARDTEST_STOPPED_CLIENT"

// step is what that process says, one line of JSON each time: once it has read, and once it has written.
type step struct {
	Error string // why the process gave up, "" if it did not
	Token uint64 // its lock's
	Value int    // what it read

	Lost    bool              // lock.Err() was ErrLost right before the write
	Refused string            // the write's error, "" if it was taken
	Stale   *fence.StaleError // the same, if errors.Is found fence.ErrStale in it
}

// stoppedClient is the program of client 1, and returns its exit status. It takes the lock, reads, says so, and writes
// when a line comes in, whatever has become of the lock.
func stoppedClient(assignment string) int {
	out := json.NewEncoder(os.Stdout)
	if err := holdAndWrite(context.Background(), assignment, out.Encode); err != nil {
		out.Encode(step{Error: err.Error()})
		return 1
	}
	return 0
}

func holdAndWrite(ctx context.Context, assignment string, say func(any) error) error {
	var task task
	if err := json.Unmarshal([]byte(assignment), &task); err != nil {
		return err
	}
	client, err := redlatch.Open(lockConfig(task.Nodes, stoppedTTL))
	if err != nil {
		return err
	}
	defer client.Close()
	account, closer, err := places()[task.Place].open(task.Address)
	if err != nil {
		return err
	}
	defer closer.Close()

	lock, err := client.Lock(ctx, task.Lock)
	if err != nil {
		return err
	}
	value, err := account.read(ctx, lock.Token(), task.Guarded)
	if err != nil {
		return err
	}
	if err := say(step{Token: lock.Token(), Value: value}); err != nil {
		return err
	}
	// The process is stopped while it waits here, between its read and its write.
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	// What a client that looks would be told. This one goes on all the same, as one does that looked before the pause.
	late := step{Token: lock.Token(), Value: value, Lost: errors.Is(lock.Err(), redlatch.ErrLost)}
	if err := account.write(ctx, lock.Token(), task.Guarded, value+10); err != nil {
		late.Refused = err.Error()
		if errors.Is(err, fence.ErrStale) {
			late.Stale, _ = errors.AsType[*fence.StaleError](err)
		}
	}
	return say(late)
}

func lockConfig(nodes []string, ttl time.Duration) redlatch.Config {
	return redlatch.Config{Nodes: nodes, TTL: ttl, MaxTTL: otherTTL, NodeTimeout: min(ttl/10, time.Second), NoQuarantine: true}
}

// process is the process of client 1 and its two ends.
type process struct {
	cmd *osexec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func startStoppedClient(t *testing.T, task task) *process {
	t.Helper()
	assignment, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(program)
	cmd.Env = append(os.Environ(), taskEnv+"="+string(assignment))
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, clientAttr()
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
	// A process that does not answer any more is the end of the test, not of the whole run.
	overdue := time.AfterFunc(2*patience, func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		overdue.Stop()
		cmd.Process.Kill()
		cmd.Wait()
	})
	return &process{cmd, in, json.NewDecoder(out)}
}

// says returns what the process says next.
func (p *process) says(t *testing.T) step {
	t.Helper()
	var s step
	if err := p.out.Decode(&s); err != nil {
		t.Fatalf("client 1 went silent: %v", err)
	}
	if s.Error != "" {
		t.Fatalf("client 1: %s", s.Error)
	}
	return s
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// TestStoppedHolder plays Kleppmann's story with nothing made up: client 1 is a process that holds a lock over three
// servers, reads, and is stopped for longer than its TTL; client 2 waits for the lock, gets it, reads and writes; client
// 1 is continued and writes, without a look at its lock. Each guard refuses it, also when it comes between client 2's
// read and write; with the guard off an update is lost.
func TestStoppedHolder(t *testing.T) {
	if stopSignal == nil {
		t.Skip("needs SIGSTOP, and a process that dies with its parent, both of Linux")
	}
	nodes := redistest.URLs(redistest.Nodes(t, 3))
	for name, place := range places() {
		for _, c := range []struct{ guarded, lateWriteFirst bool }{{false, false}, {true, false}, {true, true}} {
			t.Run(fmt.Sprintf("%s/guarded=%t/late write first=%t", name, c.guarded, c.lateWriteFirst), func(t *testing.T) {
				t.Parallel()
				scene := task{Nodes: nodes, Lock: t.Name(), Place: name, Address: place.prepare(t), Guarded: c.guarded}
				playStory(t, scene, c.lateWriteFirst)
			})
		}
	}
}

func playStory(t *testing.T, scene task, lateWriteFirst bool) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	account, closer, err := places()[scene.Place].open(scene.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer closer.Close()
	client2, err := redlatch.Open(lockConfig(scene.Nodes, otherTTL))
	if err != nil {
		t.Fatal(err)
	}
	defer client2.Close()

	client1 := startStoppedClient(t, scene)
	first := client1.says(t)
	client1.signal(t, stopSignal)

	// Client 1 renews its lock for as long as it runs, so client 2 gets it only once the pause is longer than the TTL.
	lock, err := client2.Lock(ctx, scene.Lock)
	if err != nil {
		t.Fatal(err)
	}
	if lock.Token() <= first.Token {
		t.Errorf("client 2 holds %d after client 1 held %d, want more", lock.Token(), first.Token)
	}
	read2, err := account.read(ctx, lock.Token(), scene.Guarded)
	if err != nil {
		t.Fatal(err)
	}
	if first.Value != balance || read2 != balance {
		t.Fatalf("client 1 read %d and client 2 %d, want %d both", first.Value, read2, balance)
	}
	var late step
	continueClient1 := func() {
		// The line is there before the process runs on.
		if _, err := io.WriteString(client1.in, "\n"); err != nil {
			t.Fatal(err)
		}
		client1.signal(t, contSignal)
		late = client1.says(t)
	}
	if lateWriteFirst {
		continueClient1()
	}
	if err := account.write(ctx, lock.Token(), scene.Guarded, read2+20); err != nil {
		t.Fatal(err)
	}
	if !lateWriteFirst {
		continueClient1()
	}

	if !late.Lost {
		t.Error("client 1's lock does not say that it is lost, right after the pause")
	}
	want := balance + 20 // what client 2 wrote
	if !scene.Guarded {
		want = balance + 10 // what client 1 wrote: client 2's update is lost
		if late.Refused != "" {
			t.Errorf("client 1's late write around the guard: %s", late.Refused)
		}
	} else if s := late.Stale; s == nil || s.Token != first.Token || s.Largest != lock.Token() {
		t.Errorf("client 1's late write: %q, want token %d refused for %d", late.Refused, first.Token, lock.Token())
	}
	value, err := account.read(ctx, lock.Token(), scene.Guarded)
	if err != nil || value != want {
		t.Errorf("the balance is %d (%v), want %d", value, err, want)
	}
	if err := lock.Unlock(ctx); err != nil {
		t.Errorf("client 2's lock: %v", err)
	}
	if err := client1.cmd.Wait(); err != nil {
		t.Errorf("client 1 ended: %v", err)
	}
}
