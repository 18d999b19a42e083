package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/printable"
	"github.com/redlatch/redlatch/oneshot"
)

// force releases a lock whoever has it, when somebody has said yes to what that breaks.
func (u *unlockCmd) force(out *printer) error {
	cfg, err := u.lockConfig()
	if err != nil {
		return err
	}
	client, err := u.open(cfg, out)
	if err != nil {
		return err
	}
	defer u.close(client, out)
	look, cancel := context.WithTimeout(context.Background(), handleTimeout)
	shots := oneshot.New(client)
	holding, err := shots.Inspect(look, u.Name)
	cancel()
	if err != nil {
		return u.failure("unlock", u.Name, err)
	}
	// A minority of nodes may have what another attempt has left.
	handles := make(map[string]redlatch.NodeAnswer)
	for _, node := range holding.Nodes {
		if node.Verdict == redlatch.VoteHeld {
			handles[node.Holder.ID] = node
		}
	}
	if holding.Holder.Shared {
		return usage("redlatch show says who they are: end their processes; what one that was killed has ends with its TTL",
			"cannot unlock %q: readers have it, and there is no handle for all of them", u.Name)
	}
	if len(handles) == 0 {
		return &outcome{code: exitLost, err: fmt.Errorf("cannot unlock %q: nobody holds it", u.Name)}
	}
	var others []string
	for handle, node := range handles {
		if handle != holding.Holder.ID {
			others = append(others, "  less than a quorum has it for "+u.holdingText(node.Holder, node.Left))
		}
	}
	slices.Sort(others)
	out.write(append(u.breaks(holding), others...)...)
	if err := confirm(u.Yes, "nobody can be asked", "type yes to take the lock from them: ", "nothing was unlocked", out); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), handleTimeout)
	defer cancel()
	for handle := range handles {
		released, err := shots.Release(ctx, u.Name, handle)
		switch {
		case err != nil:
			return u.failure("unlock", u.Name, err)
		case handle == holding.Holder.ID && !released:
			return &outcome{code: exitLost, err: fmt.Errorf("cannot unlock %q: %w by them any more", u.Name, errNotHeld)}
		}
	}
	out.say("%q was unlocked", u.Name)
	return nil
}

// breaks says who has the lock and what becomes of them.
func (u *unlockCmd) breaks(h oneshot.Holding) []string {
	name := printable.Text(u.Name)
	if h.Holder.ID == "" {
		return []string{name + ": no quorum of nodes has it for one holder"}
	}
	return []string{
		fmt.Sprintf("%s is held by %s", name, u.holdingText(h.Holder, h.Left)),
		"this does not stop them: they work on beside the next holder until they notice at their next renewal, or for ever if nothing renews the lock",
		"only a resource that checks fencing tokens refuses what they write after that; it is better to end their process: the lock is then free when its TTL has run out",
	}
}
