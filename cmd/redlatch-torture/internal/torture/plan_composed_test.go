//go:build linux

package torture

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// settingOf returns the setting of a run of the topology with all its kinds.
func settingOf(topology Topology, seed uint64, length time.Duration) setting {
	o := Options{For: length, Seed: seed, Nodes: 1, Workers: 6, Topology: topology, TTL: topology.DefaultTTL(), chosen: topology.faults()}
	return o.setting(false)
}

// In each topology a seed always gives the same plan. In a plan of a minute each kind of the topology
// comes, and ends before the tail.
func TestPlanOfTopology(t *testing.T) {
	for _, topology := range []Topology{Single, Sentinel, Cluster, Zookeeper, Etcd} {
		if a, b := settingOf(topology, 7, time.Minute).plan(), settingOf(topology, 7, time.Minute).plan(); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: the same seed gives two plans", topology)
		}
		if a, b := settingOf(topology, 7, time.Minute).plan(), settingOf(topology, 8, time.Minute).plan(); reflect.DeepEqual(a, b) {
			t.Errorf("%s: another seed gives the same plan", topology)
		}
		for range 50 {
			seed := rand.Uint64()
			s := settingOf(topology, seed, time.Minute)
			seen := map[kind]bool{}
			for _, it := range s.plan() {
				seen[it.kind] = true
				if it.at+it.for_ > s.length-s.tail() {
					t.Errorf("%s, seed %d: %s at %v for %v: too late", topology, seed, it.kind, it.at, it.for_)
				}
			}
			for _, k := range topology.faults() {
				if !seen[k] {
					t.Errorf("%s, seed %d: no %s", topology, seed, k)
				}
			}
		}
	}
}

// The masters of a node have one fault at a time, and so have the Sentinels, which have none during a
// minority.
func TestComposedPlanKeepsItsRules(t *testing.T) {
	for _, topology := range []Topology{Sentinel, Cluster, Zookeeper, Etcd} {
		for range 20 {
			seed := rand.Uint64()
			plan := settingOf(topology, seed, 5*time.Minute).plan()
			for i, it := range plan {
				if tr := traits[it.kind]; (it.part > 0) == (tr.worker || tr.client) || it.part > topology.parts() {
					t.Errorf("%s, seed %d: %s befalls part %d", topology, seed, it.kind, it.part)
				}
				for _, before := range plan[:i] {
					over := before.at + before.for_
					if it.part == 0 || before.part == 0 || over <= it.at {
						continue
					}
					if a, b := traits[it.kind].sentinel, traits[before.kind].sentinel; a == b || it.kind == minority || before.kind == minority {
						t.Errorf("%s, seed %d: %s at %v during %s at %v for %v", topology, seed, it.kind, it.at, before.kind, before.at, before.for_)
					}
				}
			}
		}
	}
}

// The plan of the control run has the kinds that show its bug, even if they were not chosen.
func TestControlPlan(t *testing.T) {
	for _, topology := range []Topology{Single, Sentinel, Cluster, Zookeeper, Etcd} {
		o := Options{For: topology.shortestRun(), Seed: 3, Nodes: 1, Workers: 6, Topology: topology, TTL: topology.DefaultTTL(), chosen: []kind{stop}}
		o.For = o.controlFor()
		seen := map[kind]bool{}
		for _, it := range o.setting(true).plan() {
			seen[it.kind] = true
		}
		if !seen[topology.telling()[0]] {
			t.Errorf("%s: no %s", topology, topology.telling()[0])
		}
	}
}
