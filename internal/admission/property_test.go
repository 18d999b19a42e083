package admission

import (
	"flag"
	"testing"
)

var (
	worlds     = flag.Uint64("admission.worlds", 600, "how many worlds the property is tried in")
	firstWorld = flag.Uint64("admission.first", 0, "the first of these worlds")
	onlyWorld  = flag.Int64("admission.world", -1, "replay this world alone, and say what happens in it")
)

// randomWorld is one in which things happen at random.
type randomWorld interface {
	// event fails where what happens next is not to.
	event() error
	// pass lets time pass, or not.
	pass()
	// count is how often what the world is about has come about.
	count() int
}

// inWorlds has so many events happen in a world for each seed, and fails where one does, or
// where too few of what is counted have come about.
func inWorlds(t *testing.T, what string, events int, start func(seed uint64, log func(string, ...any)) randomWorld) {
	t.Helper()
	try := func(seed uint64, log func(string, ...any)) (count int, err error) {
		w := start(seed, log)
		for range events {
			if err := w.event(); err != nil {
				return 0, err
			}
			w.pass()
		}
		return w.count(), nil
	}
	if *onlyWorld >= 0 {
		if _, err := try(uint64(*onlyWorld), t.Logf); err != nil {
			t.Error(err)
		}
		return
	}
	all := 0
	for seed := *firstWorld; seed < *firstWorld+*worlds; seed++ {
		count, err := try(seed, func(string, ...any) {})
		if err != nil {
			t.Fatalf("%v\nreplay: go test -v -run %s -admission.world %d", err, t.Name(), seed)
		}
		all += count
	}
	t.Logf("%d %s in %d worlds", all, what, *worlds)
	if all < 10*int(*worlds) {
		t.Errorf("only %d %s: too little happened", all, what)
	}
}
