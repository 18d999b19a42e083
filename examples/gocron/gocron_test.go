package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/gocron"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// machines are the clients of n machines, over three servers that all share.
func machines(t *testing.T, n int) []*redlatch.Client {
	t.Helper()
	servers, err := redistest.StartNodes(t.Context(), 3, redistest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		t.Cleanup(func() { s.Close() })
	}
	clients := make([]*redlatch.Client, n)
	for i := range clients {
		clients[i], err = redlatch.Open(redlatch.Config{
			Nodes: redistest.URLs(servers), NoQuarantine: true, NodeTimeout: time.Second, Label: fmt.Sprint("machine ", i),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { clients[i].Close() })
	}
	return clients
}

// scheduler starts one that runs task.
func scheduler(t *testing.T, schedule gocron.JobDefinition, task gocron.Task, option gocron.SchedulerOption, job ...gocron.JobOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown() }) // it may have been shut down
	if _, err := s.NewJob(schedule, task, job...); err != nil {
		t.Fatal(err)
	}
	s.Start()
	return s
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after a minute not yet: %s", what)
		}
	}
}

// Three machines are to run a job at the same time: one does, and the others are told that it is
// held, also when it was done long before they came.
func TestLocker(t *testing.T) {
	t.Parallel()
	var ran, held, late atomic.Int32 // late: the servers did not answer it in time, as on a busy machine
	for _, client := range machines(t, 3) {
		scheduler(t, gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
			gocron.NewTask(func() { ran.Add(1) }),
			gocron.WithDistributedLocker(gocronlock.NewLocker(client, redlatch.WithMinHold(20*time.Second))),
			gocron.WithName("report"),
			gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, job string, err error) {
				if locktest.Late(err) {
					late.Add(1)
					return
				}
				if job != "report" || !errors.Is(err, redlatch.ErrHeld) {
					t.Errorf("%s: %v", job, err)
				}
				held.Add(1)
			})))
	}
	await(t, "all have tried", func() bool { return ran.Load()+held.Load()+late.Load() == 3 })
	if n := ran.Load(); n > 1 || n == 0 && late.Load() == 0 {
		t.Errorf("%d ran it", n)
	}
}

// One of two machines runs all; the other takes over when it is closed, and when its lock was
// lost.
func TestElector(t *testing.T) {
	t.Parallel()
	clients := machines(t, 2)
	var ran [2]atomic.Int32
	electors := make([]*gocronlock.Elector, 2)
	var first gocron.Scheduler
	for i, client := range clients {
		electors[i] = gocronlock.NewElector(client, "leader", redlatch.WithTTL(30*time.Second))
		if i == 0 {
			if err := electors[0].IsLeader(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s := scheduler(t, gocron.DurationJob(5*time.Millisecond), gocron.NewTask(func() { ran[i].Add(1) }), gocron.WithDistributedElector(electors[i]))
		if i == 0 {
			first = s
		}
	}
	await(t, "the first has run it twenty times", func() bool { return ran[0].Load() >= 20 })
	if err := electors[1].IsLeader(t.Context()); !errors.Is(err, redlatch.ErrHeld) || ran[1].Load() > 0 {
		t.Errorf("the second: %v, and it has run it %d times", err, ran[1].Load())
	}
	if err := first.Shutdown(); err != nil {
		t.Error(err)
	}
	if err := electors[0].Close(); err != nil {
		t.Error(err)
	}
	await(t, "the second has run it, too", func() bool { return ran[1].Load() >= 3 })
	if err := electors[0].IsLeader(t.Context()); err == nil {
		t.Error("a closed elector leads")
	}
	// Its client gone, it leads no more.
	if err := clients[1].Close(); err != nil {
		t.Error(err)
	}
	if err := electors[1].IsLeader(t.Context()); !errors.Is(err, redlatch.ErrClosed) {
		t.Errorf("without a client: %v", err)
	}
	if err := electors[1].Close(); err != nil {
		t.Error(err)
	}
}

// A job that takes the lock itself has a ctx that ends with the lock.
func TestOnce(t *testing.T) {
	t.Parallel()
	clients := machines(t, 1)
	ended := make(chan error, 1)
	started := make(chan struct{})
	scheduler(t, gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
		gocronlock.Once(clients[0], "report", func(ctx context.Context) error {
			close(started)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil
		}),
		gocron.WithStopTimeout(time.Minute))
	<-started
	if err := clients[0].Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, redlatch.ErrReleased) {
		t.Error(err)
	}
}
