//go:build unix

package main

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopping signals end the wait for a lock.
var stopping = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// forwarded signals go to COMMAND's process group. While there is none yet,
// those that do not stop the wait are dropped.
var forwarded = append(slices.Clone(stopping), syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)

// jobControl signals stop and continue COMMAND and this process together.
var jobControl = []os.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGCONT}

// signals is the queue of what was sent to this process.
type signals chan os.Signal

// catchSignals starts the queue.
func catchSignals() signals {
	// Many more than a person can send: os/signal drops what does not fit.
	queue := make(signals, 64)
	queue.add(forwarded)
	// A reader of stderr that went away must not kill the holder of a lock:
	// with SIGPIPE caught, the write fails instead (os/signal documentation).
	// Unlike an ignored signal, a caught one is back to its default in COMMAND.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return queue
}

// catchJobControl adds the signals that stop and continue a job, before COMMAND
// is started: from then on Ctrl-Z may come.
func (q signals) catchJobControl() {
	q.add(jobControl)
}

// sparing calls f while SIGTSTP does nothing to this process.
func (q signals) sparing(f func()) {
	if signal.Ignored(syscall.SIGTSTP) {
		f()
		return
	}
	signal.Ignore(syscall.SIGTSTP)
	f()
	signal.Notify(q, syscall.SIGTSTP)
}

// add has signals put into the queue. Those that were ignored as this process
// started stay so, for COMMAND too: nohup and scripts, for what they put into the
// background, mean it.
func (q signals) add(set []os.Signal) {
	for _, sig := range set {
		if !inheritedIgnored(sig) {
			signal.Notify(q, sig)
		}
	}
}

// inheritedIgnored reports whether this process was started with a signal ignored.
// QUIT is ignored from then on: the Go runtime catches it from the start, but
// scripts ignore it together with INT.
func inheritedIgnored(sig os.Signal) bool {
	if sig == syscall.SIGQUIT && ignoredSignals()>>(syscall.SIGINT-1)&1 != 0 {
		signal.Ignore(syscall.SIGQUIT)
		return true
	}
	return ignoredSignals()>>(number(sig)-1)&1 != 0
}

// ignoredAsGoKnows is ignoredSignals where nothing better is known.
func ignoredAsGoKnows() (mask uint64) {
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) {
			mask |= 1 << (sig - 1)
		}
	}
	return mask
}

// dieOf ends this process by SIGINT, as a shell expects of what was interrupted,
// and returns for other signals, and where INT is ignored.
func dieOf(sig syscall.Signal) {
	if sig != syscall.SIGINT || inheritedIgnored(sig) {
		return
	}
	signal.Reset(sig)
	if syscall.Kill(syscall.Getpid(), sig) == nil {
		time.Sleep(time.Second) // it comes within that
	}
}

// maskOf is a set of signals as in /proc/PID/status.
func maskOf(set []os.Signal) (mask uint64) {
	for _, sig := range set {
		mask |= 1 << (number(sig) - 1)
	}
	return mask
}

// pending returns a stopping signal that has come in already, or nil.
func (q signals) pending() os.Signal {
	for {
		select {
		case sig := <-q:
			if stops(sig) {
				return sig
			}
		default:
			return nil
		}
	}
}

func stops(sig os.Signal) bool { return slices.Contains(stopping, sig) }

// number returns the signal's number, for kill(2) and for 128+n.
func number(sig os.Signal) syscall.Signal {
	n, _ := sig.(syscall.Signal)
	return n
}

// signalName returns a name such as "SIGTERM".
func signalName(sig os.Signal) string { return unix.SignalName(number(sig)) }
