package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/printable"
)

// beside is what a name has beside its one holder: clients that wait, readers and permits.
type beside struct {
	waiting []redlatch.Waiter
	readers []redlatch.Reader
	permits []redlatch.Listed
	err     error // why some of them may be missing
}

// lookBeside asks the nodes.
func lookBeside(ctx context.Context, cfg redlatch.Config, name string) (b beside) {
	var asked sync.WaitGroup
	var waiters, readers, permits error
	asked.Go(func() { b.waiting, waiters = redlatch.Waiters(ctx, cfg, name) })
	asked.Go(func() { b.readers, readers = redlatch.Readers(ctx, cfg, name) })
	asked.Go(func() { b.permits, _, permits = redlatch.Permits(ctx, cfg, name) })
	asked.Wait()
	b.err = cmp.Or(permits, readers, waiters)
	return b
}

// write adds a line to text for each of them.
func (b beside) write(text *strings.Builder, c *connection) {
	for _, reader := range b.readers {
		fmt.Fprintf(text, "  reader %s\n", c.holdingText(reader.Holder, reader.Left))
	}
	writeWaiting(text, b.waiting)
	for i, permit := range b.permits {
		fmt.Fprintf(text, "%s: held by %s\n", printable.Text(permit.Name), c.holdingText(permit.Holder, permit.Left))
		if i == len(b.permits)-1 {
			writeWaiting(text, permit.Waiting)
		}
	}
}

func writeWaiting(text *strings.Builder, waiting []redlatch.Waiter) {
	for i, waiter := range waiting {
		who := cmp.Or(printable.Text(waiter.Label), "a client without a label")
		if waiter.Shared {
			who += ", as a reader"
		}
		fmt.Fprintf(text, "  waiting %d: %s\n", i+1, who)
	}
}

// readersAsJSON returns the readers without their ids, which would not unlock anything.
func readersAsJSON(readers []redlatch.Reader) []holderJSON {
	var list []holderJSON
	for _, reader := range readers {
		j := holderAsJSON(reader.Holder, reader.Left)
		j.Handle = ""
		list = append(list, j)
	}
	return list
}

// permitJSON is a permit that somebody holds.
type permitJSON struct {
	Slot int `json:"slot"`
	holderJSON
	Waiting []string `json:"waiting"`
}

func permitsAsJSON(permits []redlatch.Listed) []permitJSON {
	var list []permitJSON
	for _, permit := range permits {
		j := permitJSON{permit.Slot, holderAsJSON(permit.Holder, permit.Left), labels(permit.Waiting)}
		j.Handle = ""
		list = append(list, j)
	}
	return list
}

// readersText is the number of readers, for a table.
func readersText(readers []redlatch.Reader) string {
	if len(readers) == 1 {
		return "1 reader"
	}
	return fmt.Sprintf("%d readers", len(readers))
}

// sinceText is a point in time, for a table.
func sinceText(since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return since.Local().Format(time.DateTime)
}
