//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redlatch/redlatch"
)

// redlatch lock --keep leaves a process behind that renews the lock: the keeper.
// The caller starts the keeper first, with its own command line. The keeper takes the
// lock, and the caller waits until the keeper has printed the handle or has failed.
//
// The keeper's stdin is a pipe in which the caller says that it has printed the handle, and
// which ends with the caller. Its stdout is a pipe whose text the caller prints. Its
// stderr is the caller's until the keeper has the lock. From then on it has none of the
// three and no terminal: $(...) must not wait for it.

// keptTTL is the default TTL of a lock that redlatch renews, where --max-ttl is not less. If
// its machine dies, the lock is held for that long.
const keptTTL = 10 * time.Second

// leaveKeeper starts the keeper and waits for it, in the caller.
func (l *lockCmd) leaveKeeper(out *printer) error {
	for _, file := range []string{l.CA, l.Cert, l.Key} {
		if strings.HasPrefix(file, "/dev/") || strings.HasPrefix(file, "/proc/") { // stdin, or one of the shell's <(...)
			return usage("--keep needs a file with a name of its own", "the process that keeps %q could not read %s", l.Name, file)
		}
	}
	password, err := l.password()
	if err != nil {
		return err
	}
	sigs := catchSignals()
	k, err := l.startKeeper(password)
	if err != nil {
		return &outcome{code: exitSystem, err: fmt.Errorf("cannot start the process that keeps %q: %w", l.Name, err)}
	}
	printed := make(chan []byte)
	go func() {
		text, _ := io.ReadAll(k.output) // it returns when the keeper has the lock or has ended
		printed <- text
	}()
	var text []byte
	var last os.Signal
	for text == nil {
		select {
		case sig := <-sigs:
			if stops(sig) {
				last = sig
				_ = syscall.Kill(k.pid, number(sig))
			}
		case text = <-printed:
			if text == nil {
				text = []byte{}
			}
		}
	}
	handle, kept := bytes.CutSuffix(text, []byte(keptMark))
	switch {
	case !kept:
		status := waitFor(k.pid)
		end := &outcome{code: statusCode(status)} // the keeper has printed the error
		switch {
		case status.Signaled() && last != nil:
			return interrupted(last, l.quoted())
		case status.Signaled():
			end.err = fmt.Errorf("cannot lock %s: the process that keeps it has ended (%s)", l.quoted(), describe(status))
		case last != nil && end.code == exitSignal+int(number(last)):
			end.signal = number(last)
		}
		if !taken(string(text)) { // with --json the error is here
			out.write(string(text))
		}
		return end
	case last != nil: // the keeper gets the signal after it has the lock, and releases it
		waitFor(k.pid)
		return interrupted(last, l.quoted())
	}
	if end := l.passOn(k, string(handle), sigs); end != nil {
		return end
	}
	return nil
}

// passOn prints the handle, and tells the keeper so. If it cannot print it, the keeper releases the
// lock: nobody else could.
func (l *lockCmd) passOn(k *keeper, handle string, sigs signals) *outcome {
	end := l.print(handle, nil, sigs)
	if end == nil {
		if _, err := k.life.Write([]byte{0}); err == nil {
			return nil
		}
		end = &outcome{code: exitLost, err: fmt.Errorf("%s: the process that keeps the lock has ended", l.quoted())}
	}
	k.life.Close()
	waitFor(k.pid)
	return end
}

// keptMark is the last text that a keeper writes if it has the lock.
const keptMark = "\x00kept"

// keeper is the keeper as its caller sees it.
type keeper struct {
	pid int
	// life is the other end of the keeper's stdin, and output that of its stdout.
	life, output *os.File
}

// startKeeper starts the keeper. It hands the password over: the file that it is from may be one that
// the keeper cannot read, such as /dev/stdin, or one of the shell's <(...).
func (l *lockCmd) startKeeper(password string) (*keeper, error) {
	self, err := ownProgram()
	if err != nil {
		return nil, err
	}
	stdin, life, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	output, stdout, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdout.Close()
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool { // of two with one name the first counts
		name, _, _ := strings.Cut(entry, "=")
		return name == envLabel || name == envPassword
	})
	env = append(env, envLabel+"="+l.label(), envPassword+"="+password)
	keepFromChildren()
	pid, err := syscall.ForkExec(self, slices.Concat([]string{os.Args[0], "lock", "--keeper"}, os.Args[2:]), &syscall.ProcAttr{
		Env:   env,
		Files: []uintptr{stdin.Fd(), stdout.Fd(), 2},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	return &keeper{pid, life, output}, err
}

// takeSettled sets the flags in the keeper that its caller has settled.
func (l *lockCmd) takeSettled() { l.Label, l.PasswordFile = os.Getenv(envLabel), "" }

// keepFromChildren lets programs that this process starts from now on inherit only
// stdin, stdout and stderr. The keeper would otherwise keep locks of flock(1), and keep
// pipes open that others read.
func keepFromChildren() {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		for fd := 3; fd < 1024; fd++ {
			syscall.CloseOnExec(fd)
		}
	}
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// watchCaller ends the keeper, in the wait for the lock or later, if the caller ends before it has
// printed the handle, or when the process of --parent ends.
func (l *lockCmd) watchCaller(sigs signals) {
	end := sync.OnceFunc(func() { sigs <- syscall.SIGTERM }) // a second one would end it without a clean-up
	go func() {
		if n, _ := os.Stdin.Read(make([]byte, 1)); n == 0 {
			end()
		}
	}()
	if l.Parent != nil {
		go func() {
			awaitEnd(*l.Parent)
			end()
		}()
	}
}

// keep runs the keeper once it has the lock. It returns when the lock has ended.
func (l *lockCmd) keep(client *redlatch.Client, lock *redlatch.Lock, sigs signals, ttl time.Duration, out *printer) *outcome {
	out.flush(100 * time.Millisecond) // later it has no stderr
	if end := l.handOver(client, lock, sigs, ttl); end != nil {
		release(lock, out)
		return end
	}
	for {
		select {
		case <-lock.Context().Done(): // the lock was unlocked or lost
			return nil
		case sig := <-sigs:
			if !stops(sig) {
				continue
			}
		}
		release(lock, out)
		return nil
	}
}

// handOver gives the handle to the caller, which takes nothing without the mark for one, and leaves
// the caller. If it returns an outcome, the caller has no handle.
func (l *lockCmd) handOver(client *redlatch.Client, lock *redlatch.Lock, sigs signals, ttl time.Duration) *outcome {
	text := l.text(client, lock, ttl)
	if sig := sigs.pending(); sig != nil {
		return interrupted(sig, l.quoted())
	}
	if err := lock.Err(); err != nil {
		return &outcome{code: exitLost, err: err}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return &outcome{code: exitSystem, err: err}
	}
	defer null.Close()
	if _, err := os.Stdout.WriteString(text + keptMark); err != nil { // the caller has ended
		return l.unprinted(err)
	}
	if err := leaveCaller(null); err != nil {
		return &outcome{code: exitSystem, err: err}
	}
	return nil
}

// leaveCaller gives up what the keeper shares with its caller, with null in its place.
func leaveCaller(null *os.File) error {
	for _, file := range []*os.File{os.Stderr, os.Stdout} {
		// Not Close: the next file that this process opens would get the number.
		if err := duplicate(int(null.Fd()), int(file.Fd())); err != nil {
			return err
		}
	}
	return os.Chdir("/") // so that the keeper keeps no file system busy
}

// waitFor waits for a child process to end.
func waitFor(pid int) (status syscall.WaitStatus) {
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			return status
		}
	}
}
