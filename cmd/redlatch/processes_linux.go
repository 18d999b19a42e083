package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of processes that those below it leave
// behind (prctl(2), PR_SET_CHILD_SUBREAPER), so that it can find them.
func adoptOrphans() {
	// Kernels older than 3.4 refuse. Then only the group is killed.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// dieWithParent makes the kernel kill a child when the thread that forked it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// raisePriority lets this process run before others. Only root may do that. It is called after
// the start of the processes that would inherit the priority.
func raisePriority() {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, thread := range threads {
		if tid, err := strconv.Atoi(thread.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, -20)
		}
	}
}

// raise lets a process that was killed run before others, if that is permitted: it has to run
// once more to end, for which it may have to wait long among many others.
func raise(pid int) { _ = unix.Setpriority(unix.PRIO_PROCESS, pid, -20) }

// blockSignals blocks signals for the calling thread, to which the goroutine has to be locked,
// and for the processes that it starts. It returns the signals that were blocked before.
func blockSignals(mask uint64) (before uint64) {
	set, old := sigset(mask), unix.Sigset_t{}
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old) // cannot fail
	for n := range signalCount {
		if old.Val[n/sigsetWord]>>(n%sigsetWord)&1 != 0 {
			before |= 1 << n
		}
	}
	return before
}

// unblockSignals unblocks signals for the calling thread.
func unblockSignals(mask uint64) {
	set := sigset(mask)
	_ = unix.PthreadSigmask(unix.SIG_UNBLOCK, &set, nil)
}

// sigsetWord is the number of signals in one word of a set.
const sigsetWord = 8 * int(unsafe.Sizeof(unix.Sigset_t{}.Val[0]))

func sigset(mask uint64) (set unix.Sigset_t) {
	for n := range signalCount {
		if mask>>n&1 != 0 {
			set.Val[n/sigsetWord] |= 1 << (n % sigsetWord)
		}
	}
	return set
}

// canWalk returns an error if it is impossible to find the descendants of a process:
// /proc is missing, or it shows another pid namespace than that of this process.
var canWalk = sync.OnceValue(func() error {
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return err
	}
	if self != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("/proc knows process %d as %s", os.Getpid(), self)
	}
	return nil
})

// hasChildrenFiles reports whether the kernel lists the children of a thread
// (proc_tid_children(5)).
var hasChildrenFiles = sync.OnceValue(func() bool {
	pid := os.Getpid()
	_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	return err == nil
})

// walk calls visit with each process that root has started, directly or not. It visits
// a process before it looks for the children of that process, and it looks for them only
// if visit returns true. Zombies are visited, too. walk fails if canWalk does.
func walk(root int, visit func(pid int) (descend bool)) error {
	if err := canWalk(); err != nil {
		return err
	}
	children := listedChildren
	if !hasChildrenFiles() {
		children = scannedChildren()
	}
	seen := map[int]bool{root: true}
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, pid := range children(next[0]) {
			if !seen[pid] { // a process changes its parent when its parent ends meanwhile
				seen[pid] = true
				if visit(pid) {
					next = append(next, pid)
				}
			}
		}
	}
	return nil
}

// listedChildren returns the children of all threads of a process. A child that ends
// meanwhile may hide others: a caller that must see all of them looks again.
func listedChildren(parent int) []int {
	dir := "/proc/" + strconv.Itoa(parent) + "/task"
	threads, err := os.ReadDir(dir)
	if err != nil {
		return nil // the process has ended
	}
	var children []int
	for _, thread := range threads {
		text, err := os.ReadFile(dir + "/" + thread.Name() + "/children")
		if err != nil {
			continue
		}
		for field := range bytes.FieldsSeq(text) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				children = append(children, pid)
			}
		}
	}
	return children
}

// scannedChildren finds children among all processes of the system, for kernels that
// do not list children.
func scannedChildren() func(parent int) []int {
	children := make(map[int][]int)
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if stat, err := readStat(pid); err == nil {
			children[stat.parent] = append(children[stat.parent], pid)
		}
	}
	return func(parent int) []int { return children[parent] }
}

// procStat has the fields of /proc/PID/stat (proc_pid_stat(5)) that are used here.
type procStat struct {
	name   string
	parent int
	ended  bool
	// birth is the time of the start in clock ticks since boot. A pid is used again,
	// but pid and birth together stand for one process.
	birth string
}

func readStat(pid int) (procStat, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, err
	}
	// The name in parentheses may have spaces and parentheses of its own.
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	fields := bytes.Fields(text[end+1:])
	if open < 0 || end < open || len(fields) < 20 {
		return procStat{}, fmt.Errorf("/proc/%d/stat cannot be read: %q", pid, text)
	}
	parent, err := strconv.Atoi(string(fields[1]))
	// The state is that of the first thread. Others may go on after it has ended (pthread_exit(3)).
	state, threads := string(fields[0]), string(fields[17])
	return procStat{
		name:   string(text[open+1 : end]),
		parent: parent,
		ended:  slices.Contains([]string{"Z", "X", "x"}, state) && (threads == "0" || threads == "1"),
		birth:  string(fields[19]),
	}, err
}

// hasEnded reports whether a process is gone, or is a zombie.
func hasEnded(pid int) bool {
	stat, err := readStat(pid)
	if err != nil { // it is gone, or an option of /proc hides it
		return !processExists(pid)
	}
	return stat.ended
}

// birth returns a text that tells two processes with the same number apart.
func birth(pid int) string {
	stat, err := readStat(pid)
	if err != nil {
		return ""
	}
	return stat.birth
}

// parentOf returns the parent of a process, or 0 if it is not known.
func parentOf(pid int) int {
	stat, err := readStat(pid)
	if err != nil {
		return 0
	}
	return stat.parent
}

// describeProcess describes a process for people.
func describeProcess(pid int) string {
	text := "process " + strconv.Itoa(pid)
	if stat, err := readStat(pid); err == nil {
		text += " (" + stat.name + ")"
	}
	var owner unix.Stat_t
	if err := unix.Stat("/proc/"+strconv.Itoa(pid), &owner); err == nil {
		// Not by name: the name service may be behind the network that has failed.
		if owner.Uid == 0 {
			text += " of root"
		} else {
			text += " of user " + strconv.FormatUint(uint64(owner.Uid), 10)
		}
	}
	return text
}

// ignoredSignals returns the signals that were ignored when this program started, as
// far as the Go runtime has left them alone. It is called before this program catches
// or ignores any.
var ignoredSignals = sync.OnceValue(func() uint64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return ignoredAsGoKnows()
	}
	_, rest, _ := bytes.Cut(text, []byte("\nSigIgn:"))
	value, _, _ := bytes.Cut(rest, []byte("\n"))
	mask, _ := strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64)
	return mask
})

// newSharedFile returns a file without a name, for memory that processes share.
func newSharedFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("redlatch", unix.MFD_CLOEXEC)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return newUnlinkedFile()
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "memfd"), nil
}

// duplicate makes to another descriptor of the open file from.
func duplicate(from, to int) error { return os.NewSyscallError("dup3", unix.Dup3(from, to, 0)) }

// awaitEnd returns when a process that is not a child of this one has ended.
func awaitEnd(pid int) {
	born := birth(pid)
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil { // Linux before 5.3
		for processExists(pid) && birth(pid) == born && !hasEnded(pid) {
			time.Sleep(100 * time.Millisecond)
		}
		return
	}
	for {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != unix.EINTR {
			return
		}
	}
}
