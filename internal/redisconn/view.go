package redisconn

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redlatch/redlatch/internal/printable"
)

// view is what one of the configured Sentinels said about where the master is.
type view struct {
	// sentinel is the address it was asked at. id is its own id, "" where it tells none.
	sentinel, id string
	// address is the master's, where err is nil.
	address string
	err     error
}

var errNoAnswer = errors.New("no answer")

// answered reports whether anything came from the Sentinel, even a refusal.
func (v view) answered() bool {
	_, unknown := errors.AsType[*unknownMasterError](v.err)
	return unknown || hasReply(v.err)
}

// unknownMasterError is the answer of a Sentinel that names no master.
type unknownMasterError struct{ text string }

func (e *unknownMasterError) Error() string { return e.text }

// sameSentinel returns the address of an earlier view of the same Sentinel as views[i], "" if there
// is none: a Sentinel that is configured under two addresses counts once.
func sameSentinel(views []view, i int) string {
	for _, other := range views[:i] {
		if views[i].id != "" && other.id == views[i].id {
			return other.sentinel
		}
	}
	return ""
}

// majorityOf returns how many of n configured Sentinels must name the same master.
func majorityOf(n int) int { return n/2 + 1 }

// majority returns the address that a majority of the configured Sentinels name. views has one view
// for each of them; those that have not answered have an error.
func majority(views []view) (address string, ok bool) {
	votes := make(map[string]int)
	for i, v := range views {
		if v.err != nil || sameSentinel(views, i) != "" {
			continue
		}
		votes[v.address]++
		if votes[v.address] >= majorityOf(len(views)) {
			return v.address, true
		}
	}
	return "", false
}

// noMajorityError says that no majority of the configured Sentinels names one master, and what each
// of them said.
type noMajorityError struct {
	master string
	views  []view
}

func (e *noMajorityError) Error() string {
	answered := 0
	said := make([]string, len(e.views))
	for i, v := range e.views {
		if v.answered() {
			answered++
		}
		switch other := sameSentinel(e.views, i); {
		case other != "":
			said[i] = fmt.Sprintf("%s is the same Sentinel as %s and counts once", v.sentinel, other)
		case v.err == nil:
			said[i] = fmt.Sprintf("%s names %s", v.sentinel, v.address)
		case errors.Is(v.err, errNoAnswer) || errors.Is(v.err, context.DeadlineExceeded):
			said[i] = v.sentinel + ": " + errNoAnswer.Error()
		default:
			said[i] = v.sentinel + ": " + printable.Text(v.err.Error())
		}
	}
	return fmt.Sprintf("%d of %d Sentinels must name the same master %q, and %d of %d answered: %s",
		majorityOf(len(e.views)), len(e.views), e.master, answered, len(e.views), strings.Join(said, "; "))
}

// Unwrap returns the errors of the Sentinels that refuse this client, if so many do that the others
// are no majority: then waiting does not help.
func (e *noMajorityError) Unwrap() []error {
	var refused []error
	for _, v := range e.views {
		if v.err != nil && Unfit(v.err) {
			refused = append(refused, v.err)
		}
	}
	if len(e.views)-len(refused) >= majorityOf(len(e.views)) {
		return nil
	}
	return refused
}
