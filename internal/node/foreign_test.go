package node

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/printable"
)

// Errors that repeat what a server or a record says are printable.
func TestErrorsAreEscaped(t *testing.T) {
	t.Parallel()
	const evil = "\x1b[2J\u202e\n\xff"
	text := driver.Reply{Kind: driver.Text, Text: evil}
	array := driver.Reply{Kind: driver.Array, Array: []driver.Reply{text}}
	d := Deployment{Name: "d", MaxTTL: time.Second, Fenced: true}
	_, recordErr := parseRecord(evil)
	_, gatherErr := gather(array)
	census := NewCensus([]string{"a", "b"})
	_, setErr := d.reconcile(&record{Nodes: map[string]string{evil: "run"}}, census)
	census.report(0, evil)
	census.report(1, evil)
	for _, err := range []error{
		recordErr, gatherErr, setErr, census.Err(),
		d.decide(&evidence{info: info{"run_id": "r", "redis_version": evil}}).err,
		answer(text, nil).Err, answer(array, nil).Err, answer(driver.Reply{}, &driver.ServerError{Text: evil}).Err,
		ofAnotherKind(&driver.ServerError{Text: "WRONGTYPE " + evil}),
		fmt.Errorf("%w: %w", errUnfit, driver.NotSent(&driver.ServerError{Text: evil})),
	} {
		if err == nil || !printable.Is(err.Error()) {
			t.Errorf("%q", fmt.Sprint(err))
		}
	}
	if other, ok := errors.AsType[*OtherSetError](setErr); !ok || other.Recorded[0] != evil {
		t.Errorf("%+v", other)
	}
}
