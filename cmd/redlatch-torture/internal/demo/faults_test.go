//go:build unix

package demo

import (
	"fmt"
	"testing"
	"time"
)

// TestFaults plays whole races in simulated time. For any number of nodes, at most a
// minority is out, the first faults are two kills and a hang, and later faults end
// before the race does.
func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		nodes  int
		length time.Duration
		kills  int // at least
		hangs  int
	}{
		{3, 4 * time.Second, 1, 0},
		{3, 20 * time.Second, 2, 1},
		{4, 20 * time.Second, 2, 1},
		{5, 2 * time.Second, 1, 1},
		{5, 4 * time.Second, 2, 1},
		{5, 10 * time.Second, 2, 1},
		{5, 5 * time.Minute, 20, 20},
		{15, time.Minute, 5, 5},
	} {
		t.Run(fmt.Sprintf("%d nodes, %v", tt.nodes, tt.length), func(t *testing.T) {
			f := faults{length: tt.length, forget: true}
			for i := range tt.nodes {
				f.nodes = append(f.nodes, &story{number: i + 1})
			}
			count := map[fault]int{}
			for now := time.Duration(0); now < tt.length; now += redrawEvery {
				for _, s := range f.nodes {
					revive(s, now)
				}
				if s, kind, ok := f.choose(now); ok {
					if s.out() != nil {
						t.Fatalf("at %v: node %d is taken out twice", now, s.number)
					}
					s.fail(kind, now)
					count[kind]++
				}
				if out := f.out(); out > (tt.nodes-1)/2 {
					t.Fatalf("at %v: %d of %d nodes are out", now, out, tt.nodes)
				}
			}
			if count[killed] < tt.kills || count[hung] < tt.hangs {
				t.Errorf("%d kills and %d hangs, want %d and %d at least", count[killed], count[hung], tt.kills, tt.hangs)
			}
			out := 0
			for _, s := range f.nodes {
				revive(s, tt.length)
				if s.out() != nil {
					out++
				}
				if tt.length > time.Minute && len(s.outages) == 0 {
					t.Errorf("node %d was never taken out", s.number)
				}
			}
			// The quarantine of the first kills may last beyond the end of the race; that of later ones may not.
			if count[killed] > 2 && out > 0 {
				t.Errorf("%d nodes are still out in the end", out)
			}
		})
	}
}

// revive brings a node back when the stage would, and has it vote.
func revive(s *story, now time.Duration) {
	o := s.out()
	if o == nil {
		return
	}
	switch since := now - o.began; {
	case o.fault == hung && since >= hangFor+settled/2:
		o.back, o.votes = now, now
	case o.fault == killed && since >= killFor+quarantine:
		o.back, o.votes = now, now
	}
}

func TestOptions(t *testing.T) {
	good := Options{For: 10 * time.Second, Workers: 4, Nodes: 5}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for setting, o := range map[string]Options{
		"--for":         {For: time.Second, Workers: 4, Nodes: 5},
		"--workers":     {For: 10 * time.Second, Workers: 1, Nodes: 5},
		"--nodes-count": {For: 10 * time.Second, Workers: 4, Nodes: 2},
	} {
		if err := o.check(); !isInvalid(err, setting) {
			t.Errorf("%s: %v", setting, err)
		}
	}
}
