package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/redlatch/redlatch/doctor"
)

// diagnoseQuorum adds findings if too few nodes vote: for all names, or if nodes are Clusters, for
// the names in some slots.
func diagnoseQuorum(f *findings, reports []doctor.Report) {
	of := len(reports)
	need := of/2 + 1
	for _, s := range votesBySlot(reports) {
		where := ""
		if s.slots < doctor.ClusterSlots {
			where = fmt.Sprintf(" for the names in %d of %d slots", s.slots, doctor.ClusterSlots)
		}
		switch {
		case s.reached < need:
			f.add(danger, "", fmt.Sprintf("only %d of %d nodes answer%s, and a lock takes %d: no lock can be acquired", s.reached, of, where, need),
				"bring back nodes that do not answer, as listed below")
		case s.vote < need && s.vote+s.waiting < need:
			f.add(danger, "", fmt.Sprintf("only %d of %d nodes vote%s, and a lock takes %d: no lock can be acquired, and waiting does not help", s.vote, of, where, need),
				"mend what is wrong with the nodes, as listed below")
		case s.vote < need:
			f.add(warning, "", fmt.Sprintf("only %d of %d nodes vote so far%s, and a lock takes %d: no lock can be acquired until more are admitted", s.vote, of, where, need),
				"wait, or vouch for nodes as shown below")
		}
	}
}

// slotVotes is how many nodes answer, vote, and will vote, and for how many slots that is so.
type slotVotes struct{ reached, vote, waiting, slots int }

// votesBySlot counts the nodes for each slot. In a Cluster, a lock asks the master of its slot.
func votesBySlot(reports []doctor.Report) []slotVotes {
	at := make([]slotVotes, doctor.ClusterSlots)
	count := func(node doctor.Report, first, last int) {
		for i := first; i <= last; i++ {
			if node.Err == nil {
				at[i].reached++
			}
			switch {
			case refuses(node):
			case node.Status == doctor.StatusAdmitted, node.Status == doctor.StatusAdmissible:
				at[i].vote++
			case node.Status == doctor.StatusWaiting, loading(node):
				at[i].waiting++
			}
		}
	}
	for _, node := range reports {
		if node.Cluster == nil {
			count(node, 0, doctor.ClusterSlots-1)
			continue
		}
		for _, m := range node.Cluster.Masters {
			for _, r := range m.Slots {
				count(m.Report, r.First, r.Last)
			}
		}
	}
	slots := make(map[slotVotes]int)
	for _, s := range at {
		slots[s]++
	}
	var all []slotVotes
	for s, n := range slots {
		s.slots = n
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b slotVotes) int {
		return cmp.Or(a.reached-b.reached, a.vote-b.vote, a.waiting-b.waiting)
	})
	return all
}
