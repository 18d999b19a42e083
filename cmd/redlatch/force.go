package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/oneshot"
)

// force releases a lock whoever holds it. It first says what that breaks, and asks.
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
	// A minority of nodes may have the keys of another attempt.
	handles := make(map[string]redlatch.NodeAnswer)
	for _, node := range holding.Nodes {
		if node.Verdict == redlatch.VoteHeld && !node.Holder.Shared && node.Holder.ID != "" { // readers have no handle for all of them
			handles[node.Holder.ID] = node
		}
	}
	if holding.Holder.Shared {
		return usage("redlatch show lists the readers: end their processes; the lock of a reader that was killed ends with its TTL",
			"cannot unlock %q: readers hold it, and there is no handle for all of them", u.Name)
	}
	if keyIsThere(holding) && holding.Holder.ID == "" {
		return usage("delete the key on the servers when the program that set it does not need it any more",
			"cannot unlock %q: it is held by %s", u.Name, u.holdingText(holding.Holder, holding.Left))
	}
	if len(handles) == 0 {
		return &outcome{code: exitLost, err: fmt.Errorf("cannot unlock %q: nobody holds it", u.Name)}
	}
	var others []string
	for handle, node := range handles {
		if handle != holding.Holder.ID {
			others = append(others, "  fewer nodes than a quorum have it for "+u.holdingText(node.Holder, node.Left))
		}
	}
	slices.Sort(others)
	out.write(append(u.breaks(holding), others...)...)
	if err := confirm(u.Yes, "cannot ask for confirmation", "type yes to take the lock from its holder: ", "nothing was unlocked", out); err != nil {
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
			return &outcome{code: exitLost, err: fmt.Errorf("cannot unlock %q: that holder does not hold it any more", u.Name)}
		}
	}
	out.say("%q was unlocked", u.Name)
	return nil
}

// breaks says who holds the lock, and what releasing it breaks.
func (u *unlockCmd) breaks(h oneshot.Holding) []string {
	if h.Holder.ID == "" {
		return []string{fmt.Sprintf("no holder has %q on a quorum of nodes", u.Name)}
	}
	return []string{
		fmt.Sprintf("%q is held by %s", u.Name, u.holdingText(h.Holder, h.Left)),
		"unlocking does not stop the holder: it works on beside the next holder until it notices at its next renewal, or for ever if nothing renews the lock",
		"only a resource that checks fencing tokens refuses what it writes after that; it is better to end its process: the lock is then free when its TTL has run out",
	}
}
