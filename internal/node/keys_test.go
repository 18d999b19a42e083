package node

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/hashslot"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/seed"
)

// oddRecords are records whose braces a Cluster reads in its own way.
var oddRecords = []string{
	"invoice/42", "a", " ", "\x00", "ü", "{", "}", "{}", "}{", "{}x", "{}{x}", "{{x}}", "{{}}", "{x}", "{x}y", "y{x}", "y{x}{z}",
	"y{x", "y}x", "y}x{z}", "a}b{", "a{b}c}d{e}", "foo{}{bar}", "foo{{bar}}zap", "redlock:{x}", strings.Repeat("}", 40),
}

// records returns the odd ones and as many random ones.
func records(t *testing.T) []string {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	all := append([]string(nil), oddRecords...)
	for range 300 {
		record := make([]byte, 1+rng.IntN(12))
		for i := range record {
			record[i] = "ab:{}"[rng.IntN(5)]
		}
		all = append(all, string(record))
	}
	return all
}

// A record and its counter lie in one slot of a Cluster, as the server itself
// counts slots: or no script could touch both.
func TestCounterLiesInTheRecordsSlot(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{Args: []string{"--cluster-enabled", "yes"}})
	conn, err := server.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	slotOf := func(key string) int64 {
		t.Helper()
		reply, err := conn.Do("CLUSTER", "KEYSLOT", key)
		if err != nil {
			t.Fatal(err)
		}
		return reply.(int64)
	}
	for _, record := range records(t) {
		if r, c := slotOf(record), slotOf(CounterKey(record)); r != c {
			t.Errorf("record %q is in slot %d, its counter %q in %d", record, r, CounterKey(record), c)
		}
	}
}

// No two records share a counter, and none is among the records.
func TestCountersAreApart(t *testing.T) {
	t.Parallel()
	of := make(map[string]string)
	for _, record := range records(t) {
		key := CounterKey(record)
		if other, ok := of[key]; ok && other != record {
			t.Errorf("%q and %q share the counter %q", record, other, key)
		}
		of[key] = record
		if !strings.HasPrefix(key, KeyPrefix) {
			t.Errorf("the counter %q of %q could be a record", key, record)
		}
	}
}

// The worked examples of the Cluster specification.
func TestSlot(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint16{"123456789": 12739, "foo": 12182, "": 0} {
		if got := hashslot.Of(text); got != want {
			t.Errorf("slot of %q is %d, want %d", text, got, want)
		}
	}
}

// The keys of one deployment differ from each other, from another's and from
// any counter.
func TestDeploymentKeys(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, deployment := range []string{"default", "default2", "a.b", "admitted", "token"} {
		for _, key := range DeploymentKeys(deployment) {
			if seen[key] {
				t.Errorf("%q is used twice", key)
			}
			seen[key] = true
		}
	}
	for _, record := range []string{"default", "admitted", "a.b"} {
		if seen[CounterKey(record)] {
			t.Errorf("the counter of %q is a deployment's key", record)
		}
	}
}
