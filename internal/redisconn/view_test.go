package redisconn

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/printable"
)

// A master counts when more than half of the configured Sentinels name it, whatever the others
// do.
func TestMajority(t *testing.T) {
	t.Parallel()
	// One letter for each Sentinel: the master that it names, - for none, ? for no answer. A
	// number after it is the Sentinel's id.
	for said, want := range map[string]string{
		"a": "a", "?": "", "-": "",
		"aa": "a", "a?": "", "a-": "", "ab": "",
		"aaa": "a", "aa?": "a", "aab": "a", "a??": "", "a--": "", "a?b": "", "abc": "", "???": "",
		"aab?": "", "aaa?": "a", "aabb": "",
		"aaa??": "a", "aaabb": "a", "aabbc": "", "aa???": "", "aa---": "",
		// One Sentinel under two addresses has one vote.
		"a1a1": "", "a1a1a1": "", "a1a2a1": "a", "a1a1b2": "", "a1a1a2a3": "a", "a1a1b2b3b4": "b",
		// Those that tell no id are taken for several.
		"a1aa": "a", "aa1a1": "a",
	} {
		views := viewsOf(said)
		got, ok := majority(views)
		if got != want || ok != (want != "") {
			t.Errorf("%s: %q, %t, want %q", said, got, ok, want)
		}
	}
}

func viewsOf(said string) (views []view) {
	for _, r := range said {
		v := view{sentinel: fmt.Sprint("s", len(views)+1), address: string(r)}
		switch {
		case r >= '0' && r <= '9':
			views[len(views)-1].id = string(r)
			continue
		case r == '?':
			v.address, v.err = "", errNoAnswer
		case r == '-':
			v.address, v.err = "", &unknownMasterError{"it watches no master of that name"}
		}
		views = append(views, v)
	}
	return views
}

// The error says how many of how many answered, and what each said.
func TestNoMajorityError(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"a":      `1 of 1 Sentinels must name the same master "m", and 1 of 1 answered: s1 names a`,
		"ab?":    `2 of 3 Sentinels must name the same master "m", and 2 of 3 answered: s1 names a; s2 names b; s3: no answer`,
		"a-":     `2 of 2 Sentinels must name the same master "m", and 2 of 2 answered: s1 names a; s2: it watches no master of that name`,
		"a1a1b2": `2 of 3 Sentinels must name the same master "m", and 3 of 3 answered: s1 names a; s2 is the same Sentinel as s1 and counts once; s3 names b`,
	} {
		if got := (&noMajorityError{"m", viewsOf(said)}).Error(); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", said, got, want)
		}
	}
	views := viewsOf("a??")
	views[1].err = errors.New("\x1b[2J")
	if text := (&noMajorityError{"m", views}).Error(); !printable.Is(text) || !strings.Contains(text, `s2: \x1b[2J`) {
		t.Errorf("%q", text)
	}
}

// Those that refuse the client are the cause where the others are no majority.
func TestRefusalBySentinels(t *testing.T) {
	t.Parallel()
	refusal := &driver.ServerError{Text: "NOAUTH Authentication required."}
	for refusing, want := range map[int]bool{0: false, 1: false, 2: true, 3: true} {
		views := viewsOf("???")
		for i := range refusing {
			views[i].err = refusal
		}
		if got := errors.Is(&noMajorityError{"m", views}, refusal); got != want {
			t.Errorf("%d of 3 refuse: %t, want %t", refusing, got, want)
		}
	}
}
