package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/script"
)

// slotMark is in the keys of slots, and in that of their queue.
const slotMark = "}:permit:"

// permitsKey names the queue for the permits of a name, slotKey the key of one of the slots.
func permitsKey(name string) string { return "redlatch:{" + name + slotMark + ":" + name }

func slotKey(name string, slot int) string {
	return "redlatch:{" + name + slotMark + strconv.Itoa(slot) + ":" + name
}

// slotKeys are the keys of the first k slots.
func slotKeys(name string, k int) []string {
	keys := make([]string, k)
	for slot := range keys {
		keys[slot] = slotKey(name, slot)
	}
	return keys
}

// cutQueue returns the name whose queue for permits has that key.
func cutQueue(key string) (name string, ok bool) {
	_, name, ok = strings.Cut(key, slotMark+":")
	return name, ok && key == permitsKey(name)
}

// SlotKeys are the keys of all slots of a name.
func (p *Plan) SlotKeys(name string) []string { return slotKeys(name, p.Slots) }

// nextOf is the key that says who was woken up, in a release.
func nextOf(args []string) string {
	if _, ok := cutQueue(args[5]); ok {
		return args[6]
	}
	return args[5]
}

// AcquiredPermit tells that m's process holds one of k permits of name.
func (j *Judge) AcquiredPermit(m *Machine, name string, slot, k int, label string, l hook.Lease) *Holding {
	if slot < 0 || slot >= k {
		j.Condemn("a permit is one of k: %s holds slot %d of %d of %s", label, slot, k, name)
	}
	return j.acquired(m, slotKey(name, slot), label, l, false)
}

// slotOf is the slot of name that id has on the node, -1 for none.
func (n *Node) slotOf(name, id string) int {
	return slices.IndexFunc(slotKeys(name, maxSlots), func(key string) bool { return n.has(key, id) })
}

// maxSlots is more slots than any world has.
const maxSlots = 8

// forSlot returns the release of the slot that is released where r asks for whichever its holder has; else
// r.
func (n *Node) forSlot(r *request) *request {
	if len(r.step) < 2 || r.step[0] != release {
		return r
	}
	name, ok := cutQueue(r.args[3])
	if !ok {
		return r
	}
	slot := n.slotOf(name, r.step[1])
	if slot < 0 {
		return r
	}
	args := slices.Clone(r.args)
	args[3] = slotKey(name, slot)
	return newRequest(args)
}

// executeSlot runs a command that asks for one of several slots, and has it judged as the acquire step of the
// slot that was granted. Some are executed twice, as if somebody on the way had sent them again. The caller
// holds world.mu.
func (n *Node) executeSlot(s *stream, r *request) (driver.Reply, error) {
	name, _ := cutQueue(r.args[3])
	k, _ := strconv.Atoi(r.step[8])
	keys, befores := slotKeys(name, k), make([]holders, k)
	for slot, key := range keys {
		befores[slot] = n.holdersOf(key)
	}
	said, _ := n.server.Value(sideKey("next", r.args[3]))
	reply, err := n.run(r)
	n.world.History.Add(n.Name, "%s: %s", s.conn.machine.Name, exchangeText{r.args, r.step, reply, err})
	if err != nil || !granted(reply) {
		return reply, err
	}
	if n.rng.IntN(8) == 0 {
		again, err := n.run(r)
		if err != nil || !granted(again) || again.Array[0].Int != reply.Array[0].Int || again.Array[1].Int != reply.Array[1].Int {
			n.world.Judge.Condemn("a repeat is granted the same: on %s, %s is granted %v, and then %v", n.Name, r.step[1], reply, again)
		}
	}
	n.checkTurn(r, k, said)
	slot := int(reply.Array[1].Int)
	for _, other := range n.world.nodes {
		for i, key := range slotKeys(name, maxSlots) {
			if i != slot && other.has(key, r.step[1]) && n.member == nil { // in a Cluster, another may be the slot's former master
				n.world.Judge.Condemn("an attempt has one slot: on %s, %s is granted slot %d, and has %d on %s", n.Name, r.step[1], slot, i, other.Name)
			}
		}
	}
	one := n.forAcquire(r, keys[slot])
	n.checkKept(one, one.step, befores[slot], reply, nil)
	n.world.executed(n, s, one, one.step, reply, nil)
	s.snag()
	return reply, nil
}

// forAcquire returns the acquire step for the key that a step for one of several slots has done.
func (n *Node) forAcquire(r *request, key string) *request {
	one := newRequest(slices.Concat([]string{r.args[0], r.args[1], "4", key, sideKey("token", key), r.args[4], sideKey("next", key), script.Acquire}, r.step[1:7]))
	one.sent, one.vouched = r.sent, r.vouched
	return one
}

// checkTurn checks that a slot is granted to who was woken up to take it, as next said before, and that
// who takes one has the next woken up while another is free.
func (n *Node) checkTurn(r *request, k int, said string) {
	queue, id, waiter, who := r.args[3], r.step[1], r.step[7], n.woken(said)
	if who != "" && who != waiter && waiter != "*" {
		n.world.Judge.Condemn("a turn is a waiter's own: on %s, %s gets a slot as %q, and %q was woken up to take it", n.Name, id, waiter, said)
	}
	name, _ := cutQueue(queue)
	free := slices.ContainsFunc(slotKeys(name, k), func(key string) bool { return n.holdersOf(key).value == "" })
	next, _ := n.server.Value(sideKey("next", queue))
	if who == waiter && who != "" && free && len(n.server.Data().Scores(sideKey("queue", queue), n.clock())) > 0 && n.woken(next) == "" {
		n.world.Judge.Condemn("the next is woken up while a slot is free: on %s, %s gets one as %q, and another is free, and the next %q", n.Name, id, waiter, next)
	}
}

// woken is the waiter whose turn it is by what next says, "" for nobody's.
func (n *Node) woken(said string) string {
	var who string
	var until int64
	if _, err := fmt.Sscanf(said, "%s %d", &who, &until); err != nil {
		return ""
	}
	left := time.Duration(until-n.clock().UnixMilli()) * time.Millisecond
	if left < 0 || left > script.Grace {
		return ""
	}
	return who
}
