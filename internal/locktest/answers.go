package locktest

import (
	"errors"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
)

// ErrorOf returns the error of a call that returns something beside it.
func ErrorOf[T any](_ T, err error) error { return err }

// Examine returns a report of each node.
func Examine(t *testing.T, c redlatch.Config, names ...string) []doctor.Report {
	t.Helper()
	reports, err := doctor.Examine(t.Context(), c, names...)
	if err != nil {
		t.Fatal(err)
	}
	if len(reports) != len(c.Nodes) {
		t.Fatalf("%d reports for %d nodes", len(reports), len(c.Nodes))
	}
	return reports
}

// FailureOf returns the *QuorumError that err is.
func FailureOf(t *testing.T, err error) *redlatch.QuorumError {
	t.Helper()
	failure, ok := errors.AsType[*redlatch.QuorumError](err)
	if !ok {
		t.Fatalf("%v is no *QuorumError", err)
	}
	return failure
}

// VerdictOf returns what the node at index i answered in err.
func VerdictOf(t *testing.T, err error, i int) redlatch.NodeAnswer {
	t.Helper()
	failure, ok := errors.AsType[*redlatch.QuorumError](err)
	if !ok {
		t.Fatalf("%v is no *QuorumError", err)
	}
	return failure.Nodes[i]
}
