//go:build linux

package torture

import (
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// someSetting returns the setting of a run on five nodes with all kinds for which it is long enough.
func someSetting(seed uint64, length time.Duration) setting {
	o := Options{For: length, Seed: seed, Nodes: 5, Workers: 6, Topology: Redlock, TTL: 2 * time.Second, chosen: slices.Clone(Redlock.faults())}
	if length < setAllFits {
		o.chosen = slices.DeleteFunc(o.chosen, func(k kind) bool { return k == setAll })
	}
	return o.setting(false)
}

// The same seed always gives the same plan, and another seed another one.
func TestPlanRepeats(t *testing.T) {
	a, b := someSetting(7, time.Minute).plan(), someSetting(7, time.Minute).plan()
	if !reflect.DeepEqual(a, b) {
		t.Error("the same seed gives two plans")
	}
	if reflect.DeepEqual(a, someSetting(8, time.Minute).plan()) {
		t.Error("another seed gives the same plan")
	}
}

// In a plan every kind comes and ends before the tail. At most a minority is out, except in a blackout.
// No node and no worker has two faults at once.
func TestPlanKeepsItsRules(t *testing.T) {
	for range 50 {
		seed := rand.Uint64()
		s := someSetting(seed, time.Minute)
		plan := s.plan()
		seen := map[kind]bool{}
		for i, it := range plan {
			seen[it.kind] = true
			if it.at+it.for_ > s.length-tail {
				t.Errorf("seed %d: %s at %v for %v: too late", seed, it.kind, it.at, it.for_)
			}
			out := map[int]bool{}
			for _, n := range it.nodes {
				out[n] = it.out > 0
			}
			for _, before := range plan[:i] {
				for _, n := range before.nodes {
					if before.at+before.out > it.at {
						out[n] = true
					}
					if before.kind == split || it.kind == split || before.at+before.for_ <= it.at {
						continue
					}
					for _, m := range it.nodes {
						if n == m {
							t.Errorf("seed %d: node %d has %s and %s at %v", seed, n, before.kind, it.kind, it.at)
						}
					}
				}
				for _, w := range before.workers {
					for _, v := range it.workers {
						if v == w && before.at+before.for_ > it.at {
							t.Errorf("seed %d: worker %d has %s and %s at %v", seed, w, before.kind, it.kind, it.at)
						}
					}
				}
			}
			n := 0
			for _, is := range out {
				if is {
					n++
				}
			}
			if it.out > 0 && it.kind != blackout && it.kind != setAll && n > 2 {
				t.Errorf("seed %d: %d nodes are out at %v", seed, n, it.at)
			}
			if it.kind == killNode && !durable(it.nodes[0]) || it.kind == namespace && !s.wired[it.nodes[0]] {
				t.Errorf("seed %d: %s befalls node %d", seed, it.kind, it.nodes[0])
			}
		}
		for _, k := range s.kinds {
			if !seen[k] {
				t.Errorf("seed %d: no %s", seed, k)
			}
		}
	}
}

// A long run has setAll, with enough time in between. No client comes during a blackout or a setAll, and
// no two clients come at once.
func TestPlanOfClients(t *testing.T) {
	for range 20 {
		seed := rand.Uint64()
		s := someSetting(seed, 10*time.Minute)
		var all, clients []item
		for _, it := range s.plan() {
			for _, before := range all {
				if traits[it.kind].client && before.at <= it.at && it.at < before.at+before.out {
					t.Errorf("seed %d: %s at %v, when %s is not over", seed, it.kind, it.at, before.kind)
				}
				if it.kind == setAll && before.kind == setAll && it.at < before.at+setAllFits {
					t.Errorf("seed %d: all nodes are changed at %v and %v", seed, before.at, it.at)
				}
			}
			for _, before := range clients {
				if (traits[it.kind].client || it.kind == blackout || it.kind == setAll) && it.at < before.at+before.for_ {
					t.Errorf("seed %d: %s at %v, when %s is not gone", seed, it.kind, it.at, before.kind)
				}
			}
			switch {
			case it.kind == blackout || it.kind == setAll:
				all = append(all, it)
			case traits[it.kind].client:
				clients = append(clients, it)
			}
		}
		if len(clients) == 0 || !slices.ContainsFunc(all, func(it item) bool { return it.kind == setAll }) {
			t.Errorf("seed %d: %d clients, and %d faults of a majority", seed, len(clients), len(all))
		}
	}
}

func TestOptions(t *testing.T) {
	good := func() Options {
		return Options{For: time.Minute, Nodes: 5, Workers: 4, Names: 2, TTL: 2 * time.Second, Faults: []string{"stop"}}
	}
	for setting, spoil := range map[string]func(*Options){
		"--for":     func(o *Options) { o.For = time.Second },
		"nodes":     func(o *Options) { o.Nodes = 2 },
		"--workers": func(o *Options) { o.Workers = 1 },
		"--names":   func(o *Options) { o.Names = 65 },
		"--ttl":     func(o *Options) { o.TTL = time.Millisecond },
		`"flood"`:   func(o *Options) { o.Faults = []string{"flood"} },
		"--nodes":   func(o *Options) { o.Yours = []string{"redis://a:1", "redis://b:1", "rediss://u:secret@c:1"} },
		"one server": func(o *Options) {
			o.Yours = []string{"redis://a:1", "redis://b:1", "redis://u:secret@c:1?master_set=m"}
		},
		"to the masters": func(o *Options) { o.Yours = []string{"redis://a:1", "redis://b:1", "redis://u:secret@c:1?cluster"} },
		"kill": func(o *Options) {
			o.Yours, o.Faults = []string{"redis://a:1", "redis://b:1", "redis://c:1"}, []string{"kill"}
		},
	} {
		o := good()
		spoil(&o)
		wantInvalid(t, o.complete(), setting)
	}
	t.Setenv("CC", "no-such-compiler")
	o := good()
	o.Faults = []string{"clock"}
	wantInvalid(t, o.complete(), "clock: the shim")
	o = good()
	o.Faults = nil
	if err := o.complete(); err != nil || slices.Contains(o.kinds(), nudge) || !strings.Contains(o.left, "C compiler") {
		t.Errorf("%v, left out %q, %v", o.kinds(), o.left, err)
	}
	o = good()
	if err := o.complete(); err != nil || len(o.kinds()) != 1 {
		t.Errorf("%v, %v", o.kinds(), err)
	}
	o.Yours, o.Faults, o.chosen = []string{"redis://a:1", "redis://b:1", "redis://c:1"}, nil, nil
	if err := o.complete(); err != nil {
		t.Error(err)
	}
	for _, k := range o.kinds() {
		if traits[k].server {
			t.Errorf("%s is done to nodes that are not ours", k)
		}
	}
}

// The page of a report draws each kind of fault: it has a colour and a name.
func TestPageKnowsEachKind(t *testing.T) {
	script, err := os.ReadFile("report/page/page.js")
	if err != nil {
		t.Fatal(err)
	}
	for k := range traits {
		if !regexp.MustCompile(`[\t "]` + string(k) + `"?: \["#`).Match(script) {
			t.Errorf("%s is not in page.js", k)
		}
	}
}
