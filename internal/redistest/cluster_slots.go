package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Owner returns the master that has a slot, as the first living member knows.
func (c *Cluster) Owner(slot int) (*Server, error) {
	living := c.Living()
	if len(living) == 0 {
		return nil, errors.New("redistest: no member is living")
	}
	v, err := c.view(context.Background(), living[0])
	if err != nil {
		return nil, err
	}
	for id, known := range v {
		if slices.Contains(known.slots, slot) {
			return c.member(id)
		}
	}
	return nil, fmt.Errorf("redistest: nobody has slot %d", slot)
}

// SlotsOf returns the slots that a living member has itself, as it knows.
func (c *Cluster) SlotsOf(s *Server) ([]int, error) {
	v, err := c.view(context.Background(), s)
	if err != nil {
		return nil, err
	}
	return v[c.ids[s]].slots, nil
}

// MoveSlot has a slot go from its master to another, key by key, as redis-cli
// --cluster reshard does it. between, if not nil, is called before the first key,
// after each and at the end, before the move is made known.
func (c *Cluster) MoveSlot(ctx context.Context, slot int, to *Server, between func(key string)) error {
	from, err := c.Owner(slot)
	if err != nil || from == to {
		return err
	}
	if between == nil {
		between = func(string) {}
	}
	number := strconv.Itoa(slot)
	if _, err := c.ask(ctx, to, "CLUSTER", "SETSLOT", number, "IMPORTING", c.ids[from]); err != nil {
		return err
	}
	if _, err := c.ask(ctx, from, "CLUSTER", "SETSLOT", number, "MIGRATING", c.ids[to]); err != nil {
		return err
	}
	between("")
	for {
		reply, err := c.ask(ctx, from, "CLUSTER", "GETKEYSINSLOT", number, "100")
		if err != nil {
			return err
		}
		keys, _ := reply.([]any)
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			args := []string{"MIGRATE", "127.0.0.1", strconv.Itoa(to.Port()), fmt.Sprint(key), "0", "5000"}
			if c.opts.Password != "" {
				args = append(args, "AUTH", c.opts.Password)
			}
			if _, err := c.ask(ctx, from, args...); err != nil { // one that expired is no error
				return err
			}
			between(fmt.Sprint(key))
		}
	}
	// The target first: were the source first, a crash in between would leave
	// nobody who takes the slot to be its own.
	last := slices.DeleteFunc(c.Living(), func(s *Server) bool { return s == to || s == from })
	for _, s := range slices.Concat([]*Server{to, from}, last) {
		if err := c.told(ctx, s, "CLUSTER", "SETSLOT", number, "NODE", c.ids[to]); err != nil {
			return err
		}
	}
	return c.awaitOwner(ctx, to, []int{slot})
}

// told sends a command of a master to s, unless it is a replica: one that has
// become one is not an error.
func (c *Cluster) told(ctx context.Context, s *Server, args ...string) error {
	v, err := c.view(ctx, s)
	if err != nil || v[c.ids[s]].master != "" {
		return err
	}
	_, err = c.ask(ctx, s, args...)
	return err
}

// GiveSlots gives slots to a living master without their keys, whoever has them,
// with what redis-cli --cluster fix sends it: it forgets their owner, takes them
// and asks for a larger epoch than all others. Who had them and lives deletes
// its keys in them.
func (c *Cluster) GiveSlots(ctx context.Context, to *Server, slots ...int) error {
	own, err := c.SlotsOf(to)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(slots), func(slot int) bool { return slices.Contains(own, slot) })
	if err := c.give(ctx, to, others); err != nil {
		return err
	}
	return c.awaitOwner(ctx, to, slots)
}

// give sends what GiveSlots does. redis-cli sends one transaction a slot.
func (c *Cluster) give(ctx context.Context, to *Server, slots []int) error {
	if len(slots) == 0 {
		return nil
	}
	v, err := c.view(ctx, to)
	if err != nil {
		return err
	}
	assigned := make(map[int]bool)
	for _, known := range v {
		for _, slot := range known.slots {
			assigned[slot] = true
		}
	}
	remove, add := []string{"CLUSTER", "DELSLOTS"}, []string{"CLUSTER", "ADDSLOTS"}
	for _, slot := range slots {
		if assigned[slot] {
			remove = append(remove, strconv.Itoa(slot))
		}
		add = append(add, strconv.Itoa(slot))
	}
	conn, err := to.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	commands := [][]string{{"MULTI"}, remove, add, {"CLUSTER", "BUMPEPOCH"}, {"EXEC"}}
	if len(remove) == 2 {
		commands = slices.Delete(commands, 1, 2)
	}
	for _, command := range commands {
		reply, err := conn.Do(command...)
		if err != nil {
			return fmt.Errorf("%s at %s: %w", command[:min(2, len(command))], to.Addr(), err)
		}
		results, _ := reply.([]any)
		for _, result := range results {
			if e, ok := result.(ServerError); ok {
				return fmt.Errorf("giving %d slots to %s: %w", len(slots), to.Addr(), e)
			}
		}
	}
	return nil
}

// Fix gives the slots of masters that do not run, and those on which the living
// members disagree, to the living masters that have slots, in turn, without their
// keys, as redis-cli --cluster fix --cluster-fix-with-unreachable-masters does. It
// returns how many it gave.
func (c *Cluster) Fix(ctx context.Context) (int, error) {
	var views []view
	var masters []*Server
	for _, s := range c.Living() {
		v, err := c.view(ctx, s)
		if err != nil {
			return 0, err
		}
		views = append(views, v)
		if me := v[c.ids[s]]; me.master == "" && len(me.slots) > 0 {
			masters = append(masters, s)
		}
	}
	if len(masters) == 0 {
		return 0, errors.New("redistest: no living master has a slot")
	}
	// A slot is in order when all views give it to one member that runs.
	agreed := make([]int, clusterSlots)
	for _, s := range c.Members() {
		if !s.Running() {
			continue
		}
		in := make([]int, clusterSlots)
		for _, v := range views {
			for _, slot := range v[c.ids[s]].slots {
				in[slot]++
			}
		}
		for slot, n := range in {
			agreed[slot] = max(agreed[slot], n)
		}
	}
	given, n := make([][]int, len(masters)), 0
	for slot := range clusterSlots {
		if agreed[slot] < len(views) {
			given[n%len(masters)] = append(given[n%len(masters)], slot)
			n++
		}
	}
	for i, s := range masters {
		if err := c.give(ctx, s, given[i]); err != nil {
			return 0, err
		}
	}
	return n, c.AwaitServing(ctx)
}

// AwaitAgreement blocks until all living members have the same word on who has
// which slot, and on who is a replica of whom, and know of all members, living or
// not; or until ctx is done.
func (c *Cluster) AwaitAgreement(ctx context.Context) error {
	_, err := c.agreed(ctx, func(view) error { return nil })
	return err
}

// AwaitServing blocks until all living members agree, every slot has a living
// master, every living replica is connected to a master that lives, and all find
// the cluster in order; or until ctx is done.
func (c *Cluster) AwaitServing(ctx context.Context) error {
	living := make(map[string]bool)
	for _, s := range c.Living() {
		living[c.ids[s]] = true
	}
	_, err := c.agreed(ctx, func(v view) error {
		served := 0
		for id, known := range v {
			if living[id] {
				served += len(known.slots)
			}
		}
		if served != clusterSlots {
			return fmt.Errorf("%d slots have a living master", served)
		}
		for _, s := range c.Living() {
			reply, err := c.ask(ctx, s, "CLUSTER", "INFO")
			if err != nil {
				return err
			}
			if text, _ := reply.(string); fields(text)["cluster_state"] != "ok" {
				return fmt.Errorf("%s finds the cluster not in order", s.Addr())
			}
			if master := v[c.ids[s]].master; master != "" && living[master] {
				info, err := s.Info("replication")
				if err != nil {
					return err
				}
				if info["master_link_status"] != "up" {
					return fmt.Errorf("%s has no link to its master", s.Addr())
				}
			}
		}
		return nil
	})
	return err
}

func (c *Cluster) awaitOwner(ctx context.Context, owner *Server, slots []int) error {
	_, err := c.agreed(ctx, func(v view) error {
		for _, slot := range slots {
			if !slices.Contains(v[c.ids[owner]].slots, slot) {
				return fmt.Errorf("%s does not have slot %d", owner.Addr(), slot)
			}
		}
		return nil
	})
	return err
}

// agreed blocks until all living members have the same view, and it is as check
// wants it.
func (c *Cluster) agreed(ctx context.Context, check func(view) error) (v view, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err = await(ctx, nil, func(ctx context.Context) (bool, error) {
		if v, err = c.commonView(ctx); err == nil {
			err = check(v)
		}
		return err == nil, err
	})
	if err != nil {
		return nil, fmt.Errorf("redistest: waiting for the members of the cluster to agree: %w", err)
	}
	return v, nil
}

// commonView is what all living members say, but for who has failed.
func (c *Cluster) commonView(ctx context.Context) (view, error) {
	var first view
	var teller *Server
	for _, s := range c.Living() {
		v, err := c.view(ctx, s)
		if err != nil {
			return nil, err
		}
		if first == nil {
			first, teller = v, s
			continue
		}
		for _, m := range c.Members() {
			id := c.ids[m]
			a, b := first[id], v[id]
			if a.addr == "" || b.addr == "" {
				return nil, fmt.Errorf("%s or %s does not know of %s", teller.Addr(), s.Addr(), m.Addr())
			}
			if a.master != b.master || !slices.Equal(a.slots, b.slots) {
				return nil, fmt.Errorf("%s and %s disagree on %s: master %q and %q, %d and %d slots",
					teller.Addr(), s.Addr(), m.Addr(), a.master, b.master, len(a.slots), len(b.slots))
			}
		}
	}
	if first == nil {
		return nil, errors.New("no member is living")
	}
	return first, nil
}
