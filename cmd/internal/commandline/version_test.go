package commandline

import (
	"strings"
	"testing"
)

func TestVersionLine(t *testing.T) {
	if line := VersionLine("redlatch"); !strings.HasPrefix(line, "redlatch "+Version+" ") || !strings.Contains(line, " go1.") {
		t.Errorf("it says %q", line)
	}
	for built, want := range map[string]string{
		"":                                Version, // not built from a module
		"(devel)":                         Version, // without the version control's stamp
		Version:                           Version, // go install …@latest
		"v9.9.9-0.20261123125800-65207ae": Version + " (v9.9.9-0.20261123125800-65207ae)",
		Version + "+dirty":                Version + " (" + Version + "+dirty)",
	} {
		if got := versionOf(built); got != want {
			t.Errorf("built as %q it is %q, want %q", built, got, want)
		}
	}
}
