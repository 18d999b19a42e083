package node

import (
	"testing"

	"github.com/redlatch/redlatch/internal/script"
)

// A command that the scripts take up needs a form that changes nothing, or its
// permission would never be tried.
func TestEveryCommandHasAHarmlessForm(t *testing.T) {
	commands := script.Commands()
	if len(commands) < 8 {
		t.Fatalf("the scripts send only %q: the pattern does not fit them", commands)
	}
	for _, name := range commands {
		if _, ok := forms[name]; !ok {
			t.Errorf("%s has no harmless form", name)
		}
	}
}
