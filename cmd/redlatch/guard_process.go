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

// guardCmd is the guard, and parentCmd is COMMAND's parent: hidden commands.
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

// sentinel is what both guards do.
type sentinel struct {
	shared  *shared
	reports *os.File
	tree    *tree
	// alarm rings when the deadline may have passed, and look asks for a look at
	// it before that. gone is closed when redlatch run is gone, or wants us to
	// end.
	alarm *alarm
	look  chan struct{}
	gone  chan struct{}
	// starting is held while COMMAND is started: of one that has just come up, the
	// group may not be known yet.
	starting sync.Mutex
}

// newSentinel makes one of the files that startGuards passes on, and returns that
// with COMMAND's command line. inherit says whether a child is to have them.
func newSentinel(numbers []string, inherit bool) (*sentinel, *os.File, error) {
	names := []string{"shared", "life", "orders", "reports"}
	if len(numbers) != len(names) {
		return nil, nil, fmt.Errorf("%d files, not %d: this command is started by redlatch run", len(numbers), len(names))
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

// guardSignals are meant for the job, or ask the guard about those.
var guardSignals = slices.Concat(forwarded, jobControl, []os.Signal{syscall.SIGTTOU, groupQuestion})

// catchAll keeps signals meant for the job from ending this process, which has to
// outlive it. They are caught and not ignored, because COMMAND would inherit that.
func catchAll() signals {
	queue := make(signals, 64)
	queue.add(guardSignals)
	return queue
}

// Run is the guard.
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
	_ = os.Chdir("/") // keeps no file system busy

	s.shared.ready.Store(true)
	s.look <- struct{}{} // the deadline may be set already
	raisePriority()
	go s.count(caught)
	ended := make(chan struct{})
	go s.wait(orphanChanged, parent, ended)
	s.watch(func(refused []int) {
		select {
		case <-ended:
			tellRefused(refused)
		default: // COMMAND's parent does
		}
	})
	if s.shared.released.Load() {
		<-ended
	}
	return nil
}

// Run is COMMAND's parent.
func (p *parentCmd) Run(*printer) error {
	caught := catchAll()
	go func() {
		for range caught { // not for us
		}
	}()
	s, orders, err := newSentinel(p.Files, false)
	if err != nil {
		return err
	}
	s.shared.parent.Store(int32(os.Getpid()))
	go func() {
		// On Linux a process is killed with its parent when the *thread* that
		// forked it ends (prctl(2), PR_SET_PDEATHSIG): this thread is kept.
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

// start starts COMMAND and reports whether it has.
func (s *sentinel) start(text string) bool {
	o, err := decodeOrder(text)
	if err != nil {
		return false // redlatch run was killed while it wrote
	}
	s.starting.Lock()
	defer s.starting.Unlock()
	select {
	case <-s.gone:
		return false
	default:
	}
	if left, _ := s.shared.left(); left <= 0 || s.shared.expired.Load() {
		// This process was stopped until now, and others may have the lock.
		guardReport{commandFailed, uint32(syscall.ECANCELED)}.send(s.reports)
		return false
	}
	attr := &syscall.SysProcAttr{Setpgid: o.ownGroup}
	dieWithParent(attr)
	unblockSignals(maskOf(guardSignals) &^ s.shared.blocked.Load())
	// Not os/exec: taking os.Stdin's descriptor would turn off O_NONBLOCK on
	// a file description that is shared with processes we know nothing of.
	pid, err := syscall.ForkExec(o.path, o.argv, &syscall.ProcAttr{Env: o.env, Files: []uintptr{0, 1, 2}, Sys: attr})
	if err != nil {
		errno, _ := err.(syscall.Errno)
		guardReport{commandFailed, uint32(errno)}.send(s.reports)
		return false
	}
	s.shared.command.Store(int32(pid))
	if o.ownGroup {
		s.shared.group.Store(int32(pid))
		_ = syscall.Setpgid(0, 0) // in the session: COMMAND can be stopped by the keyboard
	} else {
		_, _ = syscall.Setsid() // cannot fail: this process leads no group
	}
	guardReport{commandStarted, uint32(pid)}.send(s.reports)
	return true
}

// wait waits for the children there are, and those that are adopted, as long as
// there are any, and tells redlatch run of those that matter: of COMMAND as of the
// given kind. It closes ended when parent has ended.
func (s *sentinel) wait(kind reportKind, parent int, ended chan<- struct{}) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		over := status.Exited() || status.Signaled()
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return // ECHILD: nobody is left who could leave us another
		case pid == parent && over:
			guardReport{parentEnded, uint32(status)}.send(s.reports)
			close(ended)
		case pid == int(s.shared.command.Load()):
			guardReport{kind, uint32(status)}.send(s.reports)
		}
	}
}

// watch returns when redlatch run is gone, or has no more need of us. Unless
// released, all that COMMAND started is dead then, but for those that tell is
// called with.
func (s *sentinel) watch(tell func(refused []int)) {
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
		case s.shared.released.Load(), s.shared.expired.Load(), !set:
		case left > 0: // it was moved meanwhile
			s.alarm.set(clock.Boot() + left)
		default:
			s.shared.expired.Store(true)
			s.kill(tell)
		}
	}
}

// kill kills all there is until nobody is left who can be killed.
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

// tellRefused says what could not be killed, when redlatch run is not there to do
// so. A stderr that blocks is not waited for.
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

// refusal is what is said of a process that we may not send signals to.
func refusal(pid int) string {
	return fmt.Sprintf("%s cannot be signalled (%v): it lives on, and others may have the lock", describeProcess(pid), unix.EPERM)
}
