package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// commandAttr makes COMMAND the leader of a group, and has the kernel kill it
// when this process is gone. The kernel does so for COMMAND alone, not for what
// it started: that is left to the guard.
func commandAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adoptOrphans makes this process the parent of what COMMAND's processes leave
// behind (prctl(2), PR_SET_CHILD_SUBREAPER), so that it can be found.
func adoptOrphans() {
	// Kernels older than 3.4 refuse: then only the group is killed.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// descendants returns the living processes that root started, directly or not,
// without except. It fails where /proc is missing or shows another pid
// namespace than ours.
func descendants(root, except int) ([]int, error) {
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return nil, err
	}
	if self != strconv.Itoa(os.Getpid()) {
		return nil, fmt.Errorf("/proc knows process %d as %s", os.Getpid(), self)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := make(map[int][]int)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := readStat(pid)
		if err != nil || stat.ended {
			continue // gone since the folder was read, or waited for by nobody
		}
		children[stat.parent] = append(children[stat.parent], pid)
	}
	var found []int
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, pid := range children[next[0]] {
			if pid != except {
				found, next = append(found, pid), append(next, pid)
			}
		}
	}
	return found, nil
}

// procStat is what is used of /proc/PID/stat (proc_pid_stat(5)).
type procStat struct {
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
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return procStat{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return procStat{
		parent: parent,
		ended:  slices.Contains([]string{"Z", "X", "x"}, string(fields[0])),
		birth:  string(fields[19]),
	}, err
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
