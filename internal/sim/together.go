package sim

import (
	"slices"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
)

// ofOne are the steps for several locks at once, and those for one that they are made of.
var ofOne = map[string]string{
	script.AcquireAll: script.Acquire, script.ConfirmAll: script.Confirm,
	script.ExtendAll: script.Extend, script.RepairAll: script.Repair,
}

// together returns the steps for one lock each, as commands, that a command does all of or none; none
// if it is for one lock.
func together(args []string) (commands [][]string) {
	if !strings.HasPrefix(args[0], "EVAL") {
		return nil
	}
	n, _ := strconv.Atoi(args[2])
	keys, argv := args[3:3+n], args[3+n:]
	releases := args[1] == script.ReleasingAll.SHA || args[1] == script.ReleasingAll.Text
	if !releases && (len(argv) == 0 || ofOne[argv[0]] == "") {
		return nil
	}
	for i := 0; i+2 < len(keys); i += 3 {
		one := append([]string{args[0], args[1], "3"}, keys[i:i+3]...)
		if releases {
			one[1] = script.Releasing.SHA
			commands = append(commands, append(one, argv[:3]...))
			continue
		}
		step := append([]string{ofOne[argv[0]]}, argv[1:]...)
		if argv[0] == script.AcquireAll && i > 0 {
			step = step[:7] // waiter and holder are for the first key
			if further := 9 + i/3; further < len(argv) {
				step = append(step, argv[7], argv[further])
			}
		}
		commands = append(commands, append(one, step...))
	}
	return commands
}

// executeTogether runs a command that does the steps of several locks, and has each judged. The caller
// holds world.mu.
func (n *Node) executeTogether(s *stream, r *request) (driver.Reply, error) {
	ones, befores := make([]*request, len(r.steps)), make([]holders, len(r.steps))
	for i, args := range r.steps {
		ones[i] = newRequest(args)
		ones[i].sent = r.sent
		befores[i] = n.holders(ones[i], ones[i].step)
	}
	id := ones[0].step[1]
	reply, err := n.run(r)
	yes := granted(reply)
	all := !slices.ContainsFunc(befores, func(before holders) bool { return !before.has(id) })
	if ones[0].step[0] == release && err == nil && yes != all {
		n.world.Judge.Condemn("a release says what it found: on %s, %s is told %t of all its names, and the node had %v", n.Name, id, yes, befores)
	}
	for i, one := range ones {
		did := driver.Reply{Kind: driver.Int}
		if yes || one.step[0] == release && befores[i].has(id) {
			did.Int = 1
		}
		n.checkKept(one, one.step, befores[i], did, err)
		n.world.executed(n, s, one, one.step, did, err)
	}
	if yes && err == nil && ones[0].step[0] == script.Acquire {
		if len(ones[1].step) > 8 {
			n.world.Judge.inPlace()
		}
		s.snag()
	}
	return reply, err
}

// inPlace notes that a node has granted several names in the place of locks of one.
func (j *Judge) inPlace() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.replaced++
}

// Replaced returns how often a node has done so.
func (j *Judge) Replaced() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.replaced
}
