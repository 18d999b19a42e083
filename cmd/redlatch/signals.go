//go:build unix

package main

import (
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// stopping signals end the wait for a lock.
var stopping = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// forwarded signals go to COMMAND's process group. While there is none yet,
// those that do not stop the wait are dropped.
var forwarded = append(slices.Clone(stopping), syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)

// jobControl signals stop and continue COMMAND and this process together.
var jobControl = []os.Signal{syscall.SIGTSTP, syscall.SIGCONT}

// signals is the queue of what was sent to this process.
type signals chan os.Signal

// keepIgnored stay ignored, for COMMAND too, when they were as this process
// started: nohup, and a shell without job control, mean it so. Scripts ignore
// INT and QUIT for what they put into the background, on account of the
// keyboard; who sends them to this process all the same means it, as with
// timeout(1).
var keepIgnored = []os.Signal{syscall.SIGHUP, syscall.SIGTSTP}

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

func (q signals) add(set []os.Signal) {
	for _, sig := range set {
		if signal.Ignored(sig) && slices.Contains(keepIgnored, sig) {
			continue
		}
		signal.Notify(q, sig)
	}
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
