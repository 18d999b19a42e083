package otel_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// invoices is a template for the names of the test.
func invoices(name string) string {
	if strings.HasPrefix(name, "invoice/") {
		return "invoice/{id}"
	}
	return ""
}

// What locks on real servers come to: acquired, refused to another, extended and released, under the
// span of their caller, and without their names.
func TestLocksOnServers(t *testing.T) {
	t.Parallel()
	made := collect(t, invoices)
	c := locktest.Config(redistest.URLs(locktest.Shared(t, 3))...)
	other := locktest.Open(t, c)
	c.Observer = made.observer
	client := locktest.Open(t, c)

	ctx, parent := made.tracer.Tracer("test").Start(locktest.Within(t, locktest.Patience), "request")
	lock, err := client.Lock(ctx, "invoice/of-alice")
	if err != nil {
		t.Fatal(err)
	}
	made.expect(t, map[string]float64{"redlatch.lock.held{redlatch.lock.template=invoice/{id}}": 1})
	if err := lock.Extend(ctx, 15*time.Second); err != nil {
		t.Fatal(err)
	}
	locktest.Unlock(t, lock)
	theirs := locktest.TryLock(t, other, "of-alice")
	if _, err := client.TryLock(ctx, "of-alice"); !errors.Is(err, redlatch.ErrHeld) {
		t.Fatal(err)
	}
	locktest.Unlock(t, theirs)
	parent.End()
	client.Close()

	made.expect(t, map[string]float64{
		"redlatch.lock.acquire.duration{redlatch.lock.template=invoice/{id}}":    1,
		"redlatch.lock.acquire.duration{error.type=held}":                        1,
		"redlatch.lock.round_trip.duration{redlatch.lock.template=invoice/{id}}": 1,
		"redlatch.lock.hold.duration{redlatch.lock.template=invoice/{id}}":       1,
		"redlatch.lock.extensions{redlatch.lock.template=invoice/{id}}":          1,
		"redlatch.lock.held{redlatch.lock.template=invoice/{id}}":                0,
	})
	names := make(map[string]int)
	for _, s := range made.spans.GetSpans() {
		names[s.Name]++
		if s.Name != "request" && s.Parent.SpanID() != parent.SpanContext().SpanID() {
			t.Errorf("%s is no child of the caller's span: %+v", s.Name, s)
		}
		if s.SpanKind != trace.SpanKindInternal {
			t.Errorf("%s is of kind %v", s.Name, s.SpanKind)
		}
	}
	if names["lock invoice/{id}"] != 1 || names["hold invoice/{id}"] != 1 || names["lock"] != 1 {
		t.Errorf("%v", names)
	}
	if text := made.text(t); strings.Contains(text, "alice") || !strings.Contains(text, "invoice/{id}") {
		t.Errorf("the name is told, or not even the template: %s", text)
	}
}

// A lock that is lost, and nodes that hang, go into quarantine, and come back.
func TestLossesOnServers(t *testing.T) {
	t.Parallel()
	made := collect(t, nil)
	server := redistest.New(t)
	proxy := redistest.NewProxy(t, server.Addr())
	c := locktest.WithQuarantine(proxy.URL())
	c.Observer = made.observer
	client := locktest.Open(t, c)
	locktest.Vouch(t, client, "n0")
	lock, err := client.Lock(locktest.Within(t, locktest.Patience), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := proxy.Refuse(true); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	is := func(series string, value float64) func() bool {
		return func() bool { v, ok := made.metrics(t)[series]; return ok && v == value }
	}
	const unreachable, quarantined = "redlatch.node.unreachable{redlatch.node.name=n0}", "redlatch.node.quarantined{redlatch.node.name=n0}"
	locktest.Await(t, "the node is lost", is(unreachable, 1))
	locktest.Await(t, "the lock is lost", is("redlatch.lock.losses{error.type=expired}", 1))
	if !errors.Is(lock.Err(), redlatch.ErrLost) || made.metrics(t)["redlatch.lock.extensions{error.type=no_quorum}"] == 0 {
		t.Errorf("%v, %v", lock.Err(), made.metrics(t))
	}
	locktest.KillAndRestart(t, server)
	if err := proxy.Refuse(false); err != nil {
		t.Fatal(err)
	}
	again := locktest.LockIn(locktest.Within(t, locktest.RestartQuarantine+locktest.Patience), client, t.Name()+"/again")
	locktest.Await(t, "the node is back", is(unreachable, 0))
	locktest.Await(t, "it is in quarantine", is(quarantined, 1))
	if o := <-again; o.Err != nil {
		t.Fatal(o.Err)
	}
	if !is(quarantined, 0)() {
		t.Errorf("it votes, and %v", made.metrics(t))
	}
	client.Close()
	if made.metrics(t)["redlatch.lock.held{}"] != 0 {
		t.Errorf("%v are held after Close", made.metrics(t))
	}
	if text := made.text(t); strings.Contains(text, t.Name()) {
		t.Errorf("the name is told: %s", text)
	}
}
