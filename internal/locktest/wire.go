package locktest

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
)

// ScriptCalls counts the scripts that each node has run.
func ScriptCalls(t *testing.T, nodes []*redistest.Server) []int {
	t.Helper()
	counts := make([]int, len(nodes))
	for i, s := range nodes {
		info, err := s.Info("commandstats")
		if err != nil {
			t.Fatal(err)
		}
		calls, _, _ := strings.Cut(strings.TrimPrefix(info["cmdstat_evalsha"], "calls="), ",")
		counts[i], _ = strconv.Atoi(calls)
	}
	return counts
}

// Wire is what went over one proxy: how often each step was sent for each
// holder id, and what is to be done about the next step of one kind.
type Wire struct {
	proxy *redistest.Proxy

	Mu     sync.Mutex // guards what follows
	Sent   map[string]int
	strike string // the step whose reply is to be lost, once
	how    redistest.Action
	struck chan struct{}
}

// Tap watches what goes over p.
func Tap(p *redistest.Proxy) *Wire {
	w := &Wire{proxy: p, Sent: make(map[string]int)}
	p.OnCommand(w.see)
	return w
}

// Taps watches what goes over each proxy.
func Taps(proxies []*redistest.Proxy) []*Wire {
	wires := make([]*Wire, len(proxies))
	for i, p := range proxies {
		wires[i] = Tap(p)
	}
	return wires
}

// StepOf returns the step and holder id of a script's command, "" for any other.
// A release has no step argument: its script does nothing else.
func StepOf(c redistest.Command) (name, id string) {
	if c.Name() != "EVALSHA" && c.Name() != "EVAL" || len(c.Args) < 6 {
		return "", ""
	}
	keys, err := strconv.Atoi(c.Args[2])
	args := c.Args[min(3+keys, len(c.Args)):]
	switch {
	case err != nil || len(args) < 2:
	case slices.Contains([]string{script.Releasing.SHA, script.Releasing.Text}, c.Args[1]):
		return "release", args[0]
	case slices.Contains([]string{script.ReleasingShared.SHA, script.ReleasingShared.Text}, c.Args[1]):
		return "release-shared", args[0]
	case slices.Contains([]string{script.ReleasingAll.SHA, script.ReleasingAll.Text}, c.Args[1]):
		return "release-all", args[0]
	case slices.Contains([]string{script.ReleasingSlot.SHA, script.ReleasingSlot.Text}, c.Args[1]):
		return "release-slot", args[0]
	case slices.Contains([]string{
		script.Acquire, script.Extend, script.Confirm, script.Repair,
		script.AcquireAll, script.ExtendAll, script.ConfirmAll, script.RepairAll,
		script.AcquireShared, script.ExtendShared, script.ConfirmShared, script.RepairShared,
		script.Slot,
	}, args[0]):
		return args[0], args[1]
	case args[0] == script.ExtendBatch:
		return args[0], args[3] // the first of several
	}
	return "", ""
}

func (w *Wire) see(c redistest.Command) redistest.Action {
	name, id := StepOf(c)
	if name == "" {
		return redistest.Pass
	}
	w.Mu.Lock()
	defer w.Mu.Unlock()
	w.Sent[name+" "+id]++
	if name == w.strike {
		w.strike = ""
		close(w.struck)
		return w.how
	}
	return redistest.Pass
}

// Lose has the next reply to that step lost, and returns what is closed then.
func (w *Wire) Lose(step string, how redistest.Action) <-chan struct{} {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	w.strike, w.how, w.struck = step, how, make(chan struct{})
	return w.struck
}

// Count returns how many commands of that step were sent.
func (w *Wire) Count(step string) int {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	count := 0
	for what, n := range w.Sent {
		if strings.HasPrefix(what, step+" ") {
			count += n
		}
	}
	return count
}

// CheckOnce expects that no step that gives something was sent twice.
func (w *Wire) CheckOnce(t *testing.T, steps ...string) {
	t.Helper()
	w.Mu.Lock()
	defer w.Mu.Unlock()
	for what, n := range w.Sent {
		for _, s := range steps {
			if n > 1 && strings.HasPrefix(what, s+" ") {
				t.Errorf("sent %d times: %s", n, what)
			}
		}
	}
}

// Losses are the ways in which a reply is lost.
func Losses() map[string]redistest.Action {
	return map[string]redistest.Action{"cut": redistest.CutAfter, "silence": redistest.DropReply}
}
