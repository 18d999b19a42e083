package sim

import (
	"strconv"
	"strings"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
)

// several is several.lua.
func (c *call) several(v voting) (driver.Reply, error) {
	if admitted, _ := c.seen(c.keys[0]); v.fenced && admitted != v.agreement {
		return text(""), nil
	}
	second := strconv.FormatInt(c.now.Unix(), 10)
	usual := func(i int) bool {
		keys, args := c.keys[1+3*i:], c.argv[2+3*i:]
		_, held := c.seen(keys[0])
		last, counted := c.seen(keys[1])
		_, waiting := c.seen(keys[2])
		proposed := args[2]
		return !held && !waiting && proposed[:max(0, len(proposed)-6)] == second &&
			(!counted || len(last) == len(proposed) && last < proposed)
	}
	n := (len(c.keys) - 1) / 3
	simple := make([]bool, n) // as they all are when the script looks
	for i := range simple {
		simple[i] = usual(i)
	}
	answers := []byte(strings.Repeat("0", n))
	for i := range simple {
		if keys, args := c.keys[1+3*i:], c.argv[2+3*i:]; simple[i] {
			if c.server.Replica {
				return refuse(readOnly)
			}
			if c.putNew(keys[0], args[0], args[1]) {
				c.put(keys[1], args[2], c.argv[1])
				answers[i] = '1'
			}
		}
	}
	return text(string(answers)), nil
}

// releases is releases.lua.
func (c *call) releases() (driver.Reply, error) {
	answers := []byte(strings.Repeat("0", len(c.argv)))
	var deleted []string
	for i, id := range c.argv {
		holder, held := c.seen(c.keys[2*i])
		if _, waiting := c.seen(c.keys[2*i+1]); held && holder == id && !waiting {
			answers[i] = '1'
			deleted = append(deleted, c.keys[2*i])
		}
	}
	if len(deleted) > 0 && c.server.Replica {
		return refuse(readOnly)
	}
	for _, key := range deleted {
		delete(c.server.keys, key)
	}
	return text(string(answers)), nil
}

// apart returns the single steps, as commands, that a command puts together; none if
// it is a single one itself.
func apart(args []string) (commands [][]string) {
	if !strings.HasPrefix(args[0], "EVAL") {
		return nil
	}
	n, _ := strconv.Atoi(args[2])
	keys, argv := args[3:3+n], args[3+n:]
	switch {
	case args[1] == script.Releases.SHA || args[1] == script.Releases.Text:
		for i, id := range argv {
			commands = append(commands, []string{"EVALSHA", script.Release.SHA, "3", keys[2*i], "", keys[2*i+1], id, "0", "0"})
		}
	case len(argv) > 0 && argv[0] == script.Several:
		for i := range (n - 1) / 3 {
			k, a := keys[1+3*i:], argv[2+3*i:]
			commands = append(commands, []string{"EVALSHA", args[1], "4", k[0], k[1], keys[0], k[2], script.Acquire, a[0], a[1], a[2], "", argv[1]})
		}
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
			one, step := &request{args: args}, stepOf(args)
			n.handed(one, step, befores[i])
			n.world.executed(n, s, one, step, driver.Reply{Kind: driver.Int, Int: 1}, nil)
			if step[0] == script.Acquire {
				s.snag()
			}
		}
	}
	return reply, err
}
