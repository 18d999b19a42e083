package sim

import (
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
)

// batch is the steps that a command of several.lua puts together.
type batch struct {
	keys, argv []string
	acquires   int
	releases   int
}

func batchOf(keys, argv []string) batch {
	acquires, _ := strconv.Atoi(argv[3])
	return batch{keys, argv, acquires, len(argv) - 4 - 3*acquires}
}

// acquire is the keys and arguments of the i'th acquire step.
func (b batch) acquire(i int) (keys, args []string) {
	return b.keys[1+3*i:][:3], b.argv[4+3*i:][:3]
}

// release is the keys and the holder id of the i'th release step.
func (b batch) release(i int) (keys []string, id string) {
	return b.keys[1+3*b.acquires+2*i:][:2], b.argv[4+3*b.acquires+i]
}

// apart returns the single steps, as commands, that a command puts together; none if
// it is a single one itself.
func apart(args []string) (commands [][]string) {
	if !strings.HasPrefix(args[0], "EVAL") {
		return nil
	}
	n, _ := strconv.Atoi(args[2])
	keys, argv := args[3:3+n], args[3+n:]
	if len(argv) == 0 || argv[0] != script.Batch && argv[0] != script.ExtendBatch {
		return nil
	}
	if argv[0] == script.ExtendBatch {
		for i := 1; i < len(keys); i += 2 {
			a := 3 + (i-1)/2*3
			commands = append(commands, []string{"EVALSHA", args[1], "3", keys[i], keys[i+1], keys[0], script.Extend, argv[a], argv[a+1], argv[a+2], argv[1], argv[2]})
		}
		return commands
	}
	b := batchOf(keys, argv)
	for i := range b.acquires {
		k, a := b.acquire(i)
		commands = append(commands, []string{"EVALSHA", args[1], "4", k[0], k[1], keys[0], k[2], script.Acquire, a[0], a[1], a[2], "", argv[1], argv[2]})
	}
	for i := range b.releases {
		k, id := b.release(i)
		commands = append(commands, []string{"EVALSHA", script.Releasing.SHA, "3", k[0], "", k[1], id, "0", "0"})
	}
	return commands
}

// executeApart runs a command that puts several steps together, and has each that was
// executed judged. The caller holds world.mu.
func (n *Node) executeApart(s *stream, r *request) (driver.Reply, error) {
	ones, befores := make([]*request, len(r.steps)), make([]holders, len(r.steps))
	for i, args := range r.steps {
		ones[i] = newRequest(args)
		ones[i].sent = r.sent
		befores[i] = n.holders(ones[i], ones[i].step)
	}
	reply, err := n.run(r)
	for i, one := range ones {
		if err == nil && i < len(reply.Text) && reply.Text[i] == '1' {
			n.checkKept(one, one.step, befores[i], driver.Reply{Kind: driver.Int, Int: 1}, nil)
			n.world.executed(n, s, one, one.step, driver.Reply{Kind: driver.Int, Int: 1}, nil)
			if one.step[0] == script.Acquire {
				s.snag()
			}
		}
	}
	return reply, err
}
