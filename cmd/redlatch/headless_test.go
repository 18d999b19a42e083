//go:build unix

package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

func init() {
	if filepath.Base(os.Args[0]) == "headless" {
		runtime.LockOSThread() // init and main run on the first thread
	}
}

// headless is a program that ignores SIGTERM and goes on after its first thread has ended, as a C
// program does whose main has called pthread_exit. It writes its pid to the file that it is given.
func headless() {
	signal.Ignore(syscall.SIGTERM)
	go func() {
		for state(os.Getpid()) != "Z" {
			time.Sleep(time.Millisecond)
		}
		_ = os.WriteFile(os.Args[1], []byte(strconv.Itoa(os.Getpid())+"\n"), 0o666)
		for { // until the test has removed its files
			if _, err := os.Stat(os.Args[1]); err != nil {
				os.Exit(0)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0) // ends the thread, on Linux
}
