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

// forwarded signals are passed on to COMMAND's process group. Before COMMAND has
// started, those that do not end the wait are dropped.
var forwarded = append(slices.Clone(stopping), syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)

// jobControl signals stop and continue COMMAND and this process together.
var jobControl = []os.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGCONT}

// signals is the queue of signals that this process has got.
type signals chan os.Signal

// catchSignals starts the queue.
func catchSignals() signals {
	// Room for many more than a person can send: os/signal drops what does not fit.
	queue := make(signals, 64)
	queue.add(forwarded)
	// If the reader of stderr goes away, the holder of a lock must not die of it:
	// with SIGPIPE caught, the write fails instead (os/signal documentation).
	// Unlike an ignored signal, a caught one has its default action in COMMAND.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return queue
}

// catchJobControl adds the signals that stop and continue a job. It is called
// before COMMAND starts: from then on Ctrl-Z may come.
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

// add adds signals to those that go into the queue. Signals that were ignored when
// this process started stay ignored, for COMMAND too, as far as the Go runtime has left
// them so: nohup, and scripts for their background jobs, ignore them on purpose.
func (q signals) add(set []os.Signal) {
	for _, sig := range set {
		// Where CONT is ignored it continues a process all the same, and suspend waits for it.
		if sig == syscall.SIGCONT || !inheritedIgnored(sig) {
			signal.Notify(q, sig)
		}
	}
}

// inheritedIgnored reports whether a signal was ignored when this process started.
// Scripts ignore QUIT together with INT, but the Go runtime catches QUIT from the
// start. So if INT was ignored, inheritedIgnored makes the process ignore QUIT.
func inheritedIgnored(sig os.Signal) bool {
	if sig == syscall.SIGQUIT && ignoredSignals()>>(syscall.SIGINT-1)&1 != 0 {
		signal.Ignore(syscall.SIGQUIT)
		return true
	}
	return ignoredSignals()>>(number(sig)-1)&1 != 0
}

// ignoredAsGoKnows is ignoredSignals for systems that do not list ignored signals.
func ignoredAsGoKnows() (mask uint64) {
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) {
			mask |= 1 << (sig - 1)
		}
	}
	return mask
}

// dieOf ends this process with SIGINT if sig is SIGINT, as a shell expects of an
// interrupted program. It returns for other signals, and if INT is ignored.
func dieOf(sig syscall.Signal) {
	if sig != syscall.SIGINT || inheritedIgnored(sig) {
		return
	}
	signal.Reset(sig)
	if syscall.Kill(syscall.Getpid(), sig) == nil {
		time.Sleep(time.Second) // the signal comes within that time
	}
}

// maskOf returns a set of signals as a mask, in the form of /proc/PID/status.
func maskOf(set []os.Signal) (mask uint64) {
	for _, sig := range set {
		mask |= 1 << (number(sig) - 1)
	}
	return mask
}

// pending returns a stopping signal that is already in the queue, or nil.
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
