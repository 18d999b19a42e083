package judge

import "github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"

// registers counts lost updates. It goes from the last write of each register back to the write whose value
// that one had read, and so on. A write that it does not meet was lost.
func (f *Findings) registers(h *history.History) {
	type key struct {
		name    string
		guarded bool
	}
	prev := map[key]map[string]string{}
	last := map[key]string{}
	for _, w := range h.Writes {
		k := key{w.Name, w.Guarded}
		if prev[k] == nil {
			prev[k] = map[string]string{}
		}
		prev[k][w.ID], last[k] = w.Prev, w.ID
	}
	for k, writes := range prev {
		r := &f.Open
		if k.guarded {
			r = &f.Guarded
		}
		seen := 0
		for id, ok := last[k], true; ok && id != "" && seen < len(writes); id, ok = writes[id] {
			seen++
		}
		r.Writes += len(writes)
		r.Lost += len(writes) - seen
	}
	for _, op := range h.Ops {
		if op.Stale {
			f.Guarded.Refused++
		}
	}
}
