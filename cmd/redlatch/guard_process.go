//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/redlatch/redlatch/internal/clock"
)

// guardCmd is the guard, and parentCmd is COMMAND's parent. Both are hidden commands.
type guardCmd struct{ Files []string }

type parentCmd struct{ Files []string }

func (g *guardCmd) line() *cobra.Command  { return hiddenLine("guard-process", &g.Files) }
func (p *parentCmd) line() *cobra.Command { return hiddenLine("parent-process", &p.Files) }

func hiddenLine(name string, files *[]string) *cobra.Command {
	return &cobra.Command{Use: name, Hidden: true, Args: func(_ *cobra.Command, args []string) error {
		*files = args
		return nil
	}}
}

// sentinel is what the two guards have in common.
type sentinel struct {
	shared  *shared
	reports *os.File
	tree    *tree
	// alarm rings when the deadline may have passed. look asks for a look at the
	// deadline before that. gone is closed when redlatch run has ended, or wants the
	// guards to end.
	alarm *alarm
	look  chan struct{}
	gone  chan struct{}
	// starting is held during the start of COMMAND: while COMMAND is starting, its
	// group may not be known yet.
	starting sync.Mutex
}

// newSentinel makes a sentinel from the files that startGuards passes on. It also
// returns the file that COMMAND's command line comes from. inherit says whether child
// processes inherit the files.
func newSentinel(numbers []string, inherit bool) (*sentinel, *os.File, error) {
	names := []string{"shared", "life", "orders", "reports"}
	if len(numbers) != len(names) {
		return nil, nil, fmt.Errorf("%d files, not %d: only redlatch run starts this command", len(numbers), len(names))
	}
	var files []*os.File
	for i, name := range names {
		fd, err := strconv.Atoi(numbers[i])
		if err != nil {
			return nil, nil, err
		}
		if !inherit {
			syscall.CloseOnExec(fd)
		}
		files = append(files, os.NewFile(uintptr(fd), name))
	}
	shared, err := mapShared(files[0])
	if err != nil {
		return nil, nil, err
	}
	bell, err := newAlarm()
	if err != nil {
		return nil, nil, err
	}
	adoptOrphans()
	s := &sentinel{shared: shared, reports: files[3], alarm: bell, look: make(chan struct{}, 1), gone: make(chan struct{})}
	s.tree = &tree{
		root: os.Getpid(),
		spares: func(pid int) (bool, bool) {
			return pid == int(shared.parent.Load()), true
		},
		group: func() int { return int(shared.group.Load()) },
	}
	go func() {
		_, _ = io.Copy(io.Discard, files[1])
		close(s.gone)
	}()
	return s, files[2], nil
}

// guardSignals are the signals that are meant for the job, and the one that asks the guard
// about them.
var guardSignals = slices.Concat(forwarded, jobControl, []os.Signal{syscall.SIGTTOU, groupQuestion})

// catchAll keeps signals that are meant for the job from ending this process, which
// has to outlive the job. It catches them, because COMMAND would inherit ignored ones.
func catchAll() signals {
	queue := make(signals, 64)
	queue.add(guardSignals)
	return queue
}

// Run runs the guard.
func (g *guardCmd) Run(*printer) error {
	caught := catchAll()
	s, orders, err := newSentinel(g.Files, true)
	if err != nil {
		return err
	}
	self, err := ownProgram()
	if err != nil {
		return err
	}
	parent, err := syscall.ForkExec(self, append([]string{os.Args[0], "parent-process"}, g.Files...), &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2},
	})
	if err != nil {
		return err
	}
	s.shared.parent.Store(int32(parent))
	orders.Close()
	_ = os.Chdir("/") // so that this process keeps no file system busy

	s.shared.ready.Store(true)
	s.look <- struct{}{} // the deadline may already be set
	raisePriority()
	go s.count(caught)
	ended := make(chan struct{})
	go s.wait(orphanChanged, parent, ended)
	s.watch(func(refused []int) {
		select {
		case <-ended:
			tellRefused(refused)
		default: // COMMAND's parent reports them
		}
	})
	if s.shared.released.Load() {
		<-ended
	}
	return nil
}

// Run runs COMMAND's parent.
func (p *parentCmd) Run(*printer) error {
	caught := catchAll()
	go func() {
		for range caught { // the guard acts on them
		}
	}()
	s, orders, err := newSentinel(p.Files, false)
	if err != nil {
		return err
	}
	s.shared.parent.Store(int32(os.Getpid()))
	go func() {
		// On Linux a process is killed with its parent when the *thread* that
		// forked it ends (prctl(2), PR_SET_PDEATHSIG), so this thread must not end.
		runtime.LockOSThread()
		text, err := io.ReadAll(orders)
		if err == nil && len(text) > 0 && s.start(string(text)) {
			_ = os.Chdir("/")
			raisePriority()
			s.look <- struct{}{}
			s.wait(commandChanged, 0, nil)
		}
		select {}
	}()
	s.watch(tellRefused)
	return nil
}

// start starts COMMAND and reports whether COMMAND has started.
func (s *sentinel) start(text string) bool {
	o, err := decodeOrder(text)
	if err != nil {
		return false // redlatch run was killed while it wrote the order
	}
	s.starting.Lock()
	defer s.starting.Unlock()
	select {
	case <-s.gone:
		return false
	default:
	}
	if left, _ := s.shared.left(); left <= 0 || s.shared.expired.Load() {
		// This process was stopped until now, and another client may have the lock.
		guardReport{commandFailed, uint32(syscall.ECANCELED)}.send(s.reports)
		return false
	}
	attr := &syscall.SysProcAttr{Setpgid: o.ownGroup}
	dieWithParent(attr)
	unblockSignals(maskOf(guardSignals) &^ s.shared.blocked.Load())
	// Not with os/exec: it would turn off O_NONBLOCK on the file description of
	// os.Stdin, which unknown other processes share.
	pid, err := syscall.ForkExec(o.path, o.argv, &syscall.ProcAttr{Env: o.env, Files: []uintptr{0, 1, 2}, Sys: attr})
	if err != nil {
		errno, _ := err.(syscall.Errno)
		guardReport{commandFailed, uint32(errno)}.send(s.reports)
		return false
	}
	s.shared.command.Store(int32(pid))
	if o.ownGroup {
		s.shared.group.Store(int32(pid))
		_ = syscall.Setpgid(0, 0) // it stays in the session, so that the keyboard can stop COMMAND
	} else {
		_, _ = syscall.Setsid() // cannot fail: this process leads no group
	}
	guardReport{commandStarted, uint32(pid)}.send(s.reports)
	return true
}

// wait waits for all children of this process, and for those that it adopts, until
// none is left. It reports the changes of COMMAND to redlatch run, as reports of the
// given kind, and the end of parent, upon which it closes ended.
func (s *sentinel) wait(kind reportKind, parent int, ended chan<- struct{}) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		over := status.Exited() || status.Signaled()
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return // ECHILD: no child is left that could leave another behind
		case pid == parent && over:
			guardReport{parentEnded, uint32(status)}.send(s.reports)
			close(ended)
		case pid == int(s.shared.command.Load()):
			guardReport{kind, uint32(status)}.send(s.reports)
		}
	}
}

// watch returns when redlatch run has ended or has released the guards. If it did not
// release them, all that COMMAND started is dead then, except for processes that watch
// has called tell with.
func (s *sentinel) watch(tell func(refused []int)) {
	killed := false // by this guard: the other one may have been killed before it had killed all
	for {
		select {
		case <-s.gone:
			if !s.shared.released.Load() {
				s.kill(tell)
			}
			return
		case <-s.look:
		case <-s.alarm.rings:
		}
		switch left, set := s.shared.left(); {
		case s.shared.released.Load(), killed, !set:
		case left > 0: // the deadline has moved meanwhile
			s.alarm.set(clock.Boot() + left)
		default:
			s.shared.expired.Store(true)
			s.kill(tell)
			killed = true
		}
	}
}

// kill kills all that COMMAND started until no process is left that it can kill.
func (s *sentinel) kill(tell func(refused []int)) {
	s.starting.Lock()
	defer s.starting.Unlock()
	told := false
	for {
		now := s.tree.clear(time.Second)
		if len(now.refused) > 0 && !told {
			told = true
			tell(now.refused)
		}
		if now.dying == 0 {
			return
		}
	}
}

// tellRefused says which processes could not be killed, in place of redlatch run, which
// has ended. It does not wait long for a stderr that blocks.
func tellRefused(refused []int) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		out := &printer{level: normal, out: os.Stderr}
		for _, pid := range refused {
			out.warn("%s", refusal(pid))
		}
	}()
	select {
	case <-done:
	case <-time.After(flushTime):
	}
}

// refusal is the warning about a process that this process may not send signals to.
func refusal(pid int) string {
	return fmt.Sprintf("cannot send a signal to %s (%v): it lives on, and others may have the lock", describeProcess(pid), unix.EPERM)
}
