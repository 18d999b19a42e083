package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/printable"
)

// Errors that repeat what a server or a record says are printable.
func TestErrorsAreEscaped(t *testing.T) {
	t.Parallel()
	const evil = "\x1b[2J\u202e\n\xff"
	text := driver.Reply{Kind: driver.Text, Text: evil}
	array := driver.Reply{Kind: driver.Array, Array: []driver.Reply{text}}
	_, recordErr := admission.ParseRecord("k", evil)
	_, _, gatherErr := parseInspection(array, 0)
	census := NewCensus([]string{"a", "b"})
	a := admission.Agreement{Deployment: "d", Nodes: []string{"a", "b"}, MaxTTL: time.Second}
	setErr := admission.Decide(a, admission.Evidence{Record: &admission.Record{Nodes: map[string]string{evil: "run"}}}).Err
	census.report(0, evil)
	census.report(1, evil)
	for _, err := range []error{
		recordErr, gatherErr, setErr, census.Err(),
		admission.Decide(a, admission.Evidence{
			Server: admission.Server{Run: strings.Repeat("r", 40), ReplicationID: strings.Repeat("i", 40)}, Others: admission.Others{None: 1}, Version: evil, KeepsScripts: true,
		}).Err,
		answer(text, nil).Err, answer(array, nil).Err, answer(driver.Reply{}, &driver.ServerError{Text: evil}).Err,
		ofAnotherKind(&driver.ServerError{Text: "WRONGTYPE " + evil}),
		fmt.Errorf("%w: %w", admission.ErrUnfit, driver.NotSent(&driver.ServerError{Text: evil})),
	} {
		if err == nil || !printable.Is(err.Error()) {
			t.Errorf("%q", fmt.Sprint(err))
		}
	}
	if other, ok := errors.AsType[*admission.DisagreementError](setErr); !ok || other.Recorded.Nodes[0] != evil {
		t.Errorf("%+v", other)
	}
}

// The counters that a look calls foreign are those that a grant refuses: there must be a larger one.
func TestForeignCounter(t *testing.T) {
	t.Parallel()
	for text, foreign := range map[string]bool{
		"0": false, "1764107000000000": false, "0000000000000001": false, "9007199254740990": false,
		"9007199254740991": true, "9007199254740992": true, "00000000000000001": true, "99999999999999999999": true,
		"": true, "-1": true, "+1": true, "1e9": true,
	} {
		if got := foreignCounter(text); (got != "") != foreign {
			t.Errorf("%q: %q", text, got)
		}
	}
}
