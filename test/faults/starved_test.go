package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// What a starved child process is told by its environment, beside its nodes.
const (
	starvedPasses = "REDLATCH_TEST_STARVED_PASSES" // how often the lock is to go from hand to hand
	starvedSpin   = "REDLATCH_TEST_STARVED_SPIN"   // how many goroutines use the processor up beside it
	spinner       = "REDLATCH_TEST_SPINNER"        // the child does nothing but that
)

// printer says what is wrong to the parent.
type printer struct{}

func (printer) Errorf(format string, args ...any) { fmt.Printf("failed: "+format+"\n", args...) }

// spin uses a processor up until stop is closed.
func spin(stop <-chan struct{}) {
	for spun := 0; ; spun++ {
		select {
		case <-stop:
			return
		default:
			runtime.KeepAlive(spun) // there is nothing else to do
		}
	}
}

// starvedChild is the program of a child process that passes one lock among callers
// of several clients, and says when all have been served.
func starvedChild() {
	if os.Getenv(spinner) != "" {
		go spin(nil)
		os.Stdin.Read(make([]byte, 1)) // until its parent has gone
		return
	}
	number := func(name string) int {
		n, err := strconv.Atoi(os.Getenv(name))
		if err != nil {
			panic(err)
		}
		return n
	}
	passes, spinners := number(starvedPasses), number(starvedSpin)
	const clients, callers = 4, 4
	gate := &locktest.Turnstile{T: printer{}}
	var group, spinning sync.WaitGroup
	stop := make(chan struct{})
	for range spinners {
		spinning.Go(func() { spin(stop) })
	}
	for i := range clients {
		client, err := redlatch.Open(redlatch.Config{
			Nodes:        strings.Fields(os.Getenv(locktest.ChildNodes)),
			Deployment:   os.Getenv(locktest.ChildDeployment),
			NoQuarantine: true,
			TTL:          20 * time.Second,
			NodeTimeout:  time.Second, // the processor's time is short, not the network's
		})
		if err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		defer client.Close()
		for range callers {
			group.Go(func() {
				for gate.Passed() < passes {
					ctx, cancel := context.WithTimeout(context.Background(), 3*locktest.Patience)
					lock, err := client.Lock(ctx, os.Getenv(locktest.ChildName))
					cancel()
					if err != nil {
						fmt.Println("failed: after", gate.Passed(), "passes:", err)
						os.Exit(1)
					}
					gate.Enter(lock, fmt.Sprint(i))
					gate.Leave(lock)
					lock.Unlock(context.Background())
				}
			})
		}
	}
	group.Wait()
	close(stop)
	spinning.Wait()
	fmt.Println("passed")
}

// A process that gets little of one processor: beside others that use both up,
// or with goroutines of its own that do. The lock goes from hand to hand, and
// nobody hangs.
func TestStarvedProcess(t *testing.T) {
	passes := 10_000
	if raceEnabled || testing.Short() {
		passes = 1000
	}
	for name, c := range map[string]struct{ passes, inside, beside int }{
		"beside others": {passes, 0, 2},
		"by itself":     {20, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := locktest.Shared(t, 3)
			conf := locktest.Config(redistest.URLs(nodes)...)
			for range c.beside {
				cmd := exec.CommandContext(t.Context(), os.Args[0])
				cmd.Env = append(os.Environ(), locktest.ChildNodes+"=none", spinner+"=1")
				in, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					in.Close()
					cmd.Wait()
				})
			}
			start := time.Now()
			p := locktest.StartChild(t, conf, t.Name(), "GOMAXPROCS=1",
				fmt.Sprint(starvedPasses, "=", c.passes), fmt.Sprint(starvedSpin, "=", c.inside))
			if said := p.Says(t); said != "passed" {
				t.Errorf("the child said %q", said)
			}
			t.Logf("%d passes in %v", c.passes, time.Since(start).Round(time.Millisecond))
		})
	}
}
