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

// adoptOrphans makes this process the parent of what the processes below it leave
// behind (prctl(2), PR_SET_CHILD_SUBREAPER), so that it can be found.
func adoptOrphans() {
	// Kernels older than 3.4 refuse: then only the group is killed.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// dieWithParent has the kernel kill a child when the thread that forked it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// raisePriority has this process go before others, where that is permitted, which is to root.
// It comes after the processes have been started that would inherit it.
func raisePriority() {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, thread := range threads {
		if tid, err := strconv.Atoi(thread.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, -20)
		}
	}
}

// raise has a process that was killed go before others, where that is permitted: it needs
// a turn to end, which among many others may be long in coming.
func raise(pid int) { _ = unix.Setpriority(unix.PRIO_PROCESS, pid, -20) }

// blockSignals keeps signals from the calling thread, which has to be locked, and from
// what it starts. It returns those that were kept from it before.
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

// unblockSignals ends that.
func unblockSignals(mask uint64) {
	set := sigset(mask)
	_ = unix.PthreadSigmask(unix.SIG_UNBLOCK, &set, nil)
}

// sigsetWord is how many signals a word of a set has.
const sigsetWord = 8 * int(unsafe.Sizeof(unix.Sigset_t{}.Val[0]))

func sigset(mask uint64) (set unix.Sigset_t) {
	for n := range signalCount {
		if mask>>n&1 != 0 {
			set.Val[n/sigsetWord] |= 1 << (n % sigsetWord)
		}
	}
	return set
}

// canWalk reports why the descendants of a process cannot be found: /proc is
// missing, or it shows another pid namespace than ours.
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

// walk calls visit with each process that root started, directly or not, before
// it looks for those that this one started. Processes that have ended and were
// not waited for are among them. What visit reports false for is not descended
// into. It fails where canWalk does.
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
			if !seen[pid] { // its parent may have ended while we looked
				seen[pid] = true
				if visit(pid) {
					next = append(next, pid)
				}
			}
		}
	}
	return nil
}

// listedChildren returns the children of all of a process's threads. One that
// ends meanwhile may hide others: who must see all of them looks again.
func listedChildren(parent int) []int {
	dir := "/proc/" + strconv.Itoa(parent) + "/task"
	threads, err := os.ReadDir(dir)
	if err != nil {
		return nil // it has ended
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

// scannedChildren looks at all processes there are, for kernels that do not list
// children.
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

// procStat is what is used of /proc/PID/stat (proc_pid_stat(5)).
type procStat struct {
	name   string
	parent int
	ended  bool
	// birth is the time of the start in clock ticks since boot: with the
	// number it stands for one process, the number alone is used again.
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
	return procStat{
		name:   string(text[open+1 : end]),
		parent: parent,
		ended:  slices.Contains([]string{"Z", "X", "x"}, string(fields[0])),
		birth:  string(fields[19]),
	}, err
}

// hasEnded reports whether a process is gone, or waits for nothing but its
// parent's wait(2).
func hasEnded(pid int) bool {
	stat, err := readStat(pid)
	if err != nil { // gone, or hidden by an option of /proc
		return !processExists(pid)
	}
	return stat.ended
}

// birth tells two processes with the same number apart.
func birth(pid int) string {
	stat, err := readStat(pid)
	if err != nil {
		return ""
	}
	return stat.birth
}

// parentOf returns 0 when it is not known.
func parentOf(pid int) int {
	stat, err := readStat(pid)
	if err != nil {
		return 0
	}
	return stat.parent
}

// describeProcess says which process it is, for people.
func describeProcess(pid int) string {
	text := "process " + strconv.Itoa(pid)
	if stat, err := readStat(pid); err == nil {
		text += " (" + stat.name + ")"
	}
	var owner unix.Stat_t
	if err := unix.Stat("/proc/"+strconv.Itoa(pid), &owner); err == nil {
		// Not by name: who is asked for that may be behind the network that is gone.
		if owner.Uid == 0 {
			text += " of root"
		} else {
			text += " of user " + strconv.FormatUint(uint64(owner.Uid), 10)
		}
	}
	return text
}

// ignoredSignals are those that were ignored as this program started, as far as
// the Go runtime left them alone. It is asked before any is caught or ignored here.
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

// newSharedFile returns a file that has no name, for memory that processes share.
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

// duplicate makes to another number for the open file from.
func duplicate(from, to int) error { return os.NewSyscallError("dup3", unix.Dup3(from, to, 0)) }

// awaitEnd returns when a process that is no child of ours has ended.
func awaitEnd(pid int) {
	born := birth(pid)
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil { // Linux 5.3
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
