package sim

import (
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
)

// bundle is the steps that a command of several.lua puts together.
type bundle struct {
	keys, argv []string
	acquires   int
	releases   int
}

func bundleOf(keys, argv []string) bundle {
	acquires, _ := strconv.Atoi(argv[3])
	return bundle{keys, argv, acquires, len(argv) - 4 - 3*acquires}
}

// acquire is the keys and arguments of the i'th acquire step.
func (b bundle) acquire(i int) (keys, args []string) {
	return b.keys[1+3*i:][:3], b.argv[4+3*i:][:3]
}

// release is the keys and the holder id of the i'th release step.
func (b bundle) release(i int) (keys []string, id string) {
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
	if len(argv) == 0 || argv[0] != script.Batch {
		return nil
	}
	b := bundleOf(keys, argv)
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
func (n *Node) executeApart(s *stream, r *request, commands [][]string) (driver.Reply, error) {
	befores := make([]string, len(commands))
	for i, args := range commands {
		befores[i] = n.holder(&request{args: args}, stepOf(args))
	}
	reply, err := n.server.Exec(r.args)
	for i, args := range commands {
		if err == nil && i < len(reply.Text) && reply.Text[i] == '1' {
			one, step := &request{args: args, sent: r.sent}, stepOf(args)
			n.handed(one, step, befores[i], driver.Reply{Kind: driver.Int, Int: 1}, nil)
			n.world.executed(n, s, one, step, driver.Reply{Kind: driver.Int, Int: 1}, nil)
			if step[0] == script.Acquire {
				s.snag()
			}
		}
	}
	return reply, err
}
