//go:build linux

package torture

import (
	"io"
	"testing"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/engine"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/spawn"
	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/judge"
)

// A run of some seconds on each engine violates nothing, and has faults of servers and of workers. There
// is no control run, since the faults that show its bug take longer.
func TestRunOfEngine(t *testing.T) {
	for _, topology := range Engines {
		t.Run(string(topology), func(t *testing.T) {
			if err := engine.Engine(topology).Missing(); err != nil {
				t.Skip(err)
			}
			t.Setenv("TMPDIR", t.TempDir())
			self, err := spawn.Self(WorkerCommand)
			if err != nil {
				t.Fatal(err)
			}
			o := Options{
				Topology: topology, For: 6 * time.Second, Seed: 1, Nodes: 1, Workers: 3, Names: 2, TTL: topology.DefaultTTL(), Out: io.Discard,
				WorkerCommand: self, prefix: "torture", chosen: []kind{killNode, lostReply, crash, stop},
			}
			h, _, err := round(t.Context(), o, false)
			if err != nil {
				t.Fatal(err)
			}
			f := judge.Judge(h, judging(o.For))
			if len(f.Overlaps)+len(f.Tokens)+f.Guarded.Lost > 0 || f.Linearizable.Locks == judge.Violated || f.Linearizable.Registers == judge.Violated || len(h.Errors) > 0 {
				t.Errorf("%+v, %v", f, h.Errors)
			}
			fired := map[string]int{}
			for _, fault := range h.Faults {
				fired[fault.Kind]++
			}
			if f.Acquisitions == 0 || fired["kill"]+fired["lost-reply"] == 0 || fired["crash"]+fired["stop"] == 0 {
				t.Errorf("%d acquisitions, %v", f.Acquisitions, fired)
			}
		})
	}
}
