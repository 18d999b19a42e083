package redlatch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/vote"
	"github.com/redlatch/redlatch/redlatchtest"
)

// What a key's value says of its holder, if a client of this library wrote it; of any other value nothing is believed.
func TestHolderOfAValue(t *testing.T) {
	t.Parallel()
	client := hook.ClientOf(redlatchtest.New(t, redlatch.Config{}).Client)
	const secret, since = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "mwwuymle"
	for id, want := range map[string]struct {
		label string
		ours  bool
	}{
		secret + "." + since + ".host:7":                     {"host:7", true},
		secret + "." + since + ".a.b":                        {"a.b", true},
		secret + "." + since + ".":                           {"", true},
		secret + "." + since:                                 {"", false},
		secret + ".no time.host:7":                           {"", false},
		secret[1:] + "." + since + ".host:7":                 {"", false},
		secret + "." + since + ".\x1b[2J":                    {"", false},
		secret + "." + since + "." + strings.Repeat("x", 65): {"", false},
		"a token": {"", false},
		"":        {"", false},
	} {
		h := client.Holder(id).(redlatch.Holder)
		if h.ID != id || h.Label != want.label || h.Since.IsZero() == want.ours || h.Shared {
			t.Errorf("%q: %+v", id, h)
		}
	}
	if h := client.Holder(vote.SharedMark).(redlatch.Holder); !h.Shared || !h.Since.IsZero() {
		t.Errorf("readers: %+v", h)
	}
}

// A holder is printed by its label and since when it has the lock, or else by its id, and never with characters that
// a terminal obeys.
func TestHolderIsPrinted(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, h := range map[string]redlatch.Holder{
		"readers":                           {ID: "x", Label: "a", Shared: true},
		`holder "a\x1bb"`:                   {ID: "a\x1bb"},
		"host:7 since 2026-01-02T03:04:05Z": {ID: "x", Label: "host:7", Since: since},
	} {
		if got := h.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := (redlatch.Holder{Label: "a\x1bb", Since: since}).String(); strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
}
