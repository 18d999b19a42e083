package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/redlatch/redlatch/doctor"
)

// diagnoseQuorum says where too few nodes vote: for all names, or where nodes are Clusters, for
// those in some slots.
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
			f.add(danger, "", fmt.Sprintf("only %d of %d nodes can be asked%s, and it takes %d: no lock can be acquired", s.reached, of, where, need),
				"bring back nodes of those that are said below not to answer")
		case s.vote < need && s.vote+s.waiting < need:
			f.add(danger, "", fmt.Sprintf("only %d of %d nodes vote%s, and it takes %d: no lock can be acquired, and waiting does not cure it", s.vote, of, where, need),
				"mend what is said of the nodes below")
		case s.vote < need:
			f.add(warning, "", fmt.Sprintf("only %d of %d nodes vote yet%s, and it takes %d: no lock can be acquired until more are admitted", s.vote, of, where, need),
				"wait, or vouch for nodes as said below")
		}
	}
}

// slotVotes is how many nodes can be asked, vote, and will vote, in so many slots.
type slotVotes struct{ reached, vote, waiting, slots int }

// votesBySlot returns those there are: a lock asks of a Cluster the master of its slot.
func votesBySlot(reports []doctor.Report) []slotVotes {
	at := make([]slotVotes, doctor.ClusterSlots)
	count := func(node doctor.Report, first, last int) {
		for i := first; i <= last; i++ {
			if node.Err == nil {
				at[i].reached++
			}
			switch node.Status {
			case doctor.StatusAdmitted, doctor.StatusAdmissible:
				at[i].vote++
			case doctor.StatusWaiting:
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
