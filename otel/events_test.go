package otel_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/otel"
)

// What a call that failed comes to, whatever else its error wraps, and whether its span is an error.
func TestFailures(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancelCause(t.Context())
	end(redlatch.ErrLost) // as the context of a lock
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for want, c := range map[string]struct {
		ctx   context.Context
		err   error
		isErr bool
	}{
		"held":         {late, fmt.Errorf("%w; %w", context.DeadlineExceeded, redlatch.ErrHeld), false},
		"no_quorum":    {late, fmt.Errorf("%w; %w", context.DeadlineExceeded, redlatch.ErrNoQuorum), true},
		"not_admitted": {t.Context(), redlatch.ErrNotAdmitted, true},
		"overloaded":   {late, fmt.Errorf("%w; %w", context.DeadlineExceeded, redlatch.ErrOverloaded), true},
		"refused":      {t.Context(), redlatch.ErrRefused, true},
		"invalid":      {t.Context(), fmt.Errorf("%w; %w", redlatch.ErrRefused, redlatch.ErrInvalid), true}, // the deployment's settings are others
		"closed":       {t.Context(), fmt.Errorf("%w; %w", redlatch.ErrClosed, redlatch.ErrHeld), true},
		"canceled":     {ended, fmt.Errorf("lock: %w", context.Cause(ended)), false},
		"timeout":      {late, fmt.Errorf("lock: %w", context.Cause(late)), false},
		"_OTHER":       {t.Context(), errors.New("x"), true},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			made := collect(t, nil)
			made.observer.Observe(c.ctx, redlatch.LockFailed{Name: "secret", Err: c.err, Waited: time.Second, Tries: 3})
			made.expect(t, map[string]float64{
				"redlatch.lock.acquire.duration{error.type=" + want + "}": 1,
				"redlatch.lock.acquire.tries{}":                           3,
			})
			spans := made.spans.GetSpans()
			if len(spans) != 1 || spans[0].Name != "lock" || (spans[0].Status.Code == codes.Error) != c.isErr || spans[0].EndTime.Sub(spans[0].StartTime) != time.Second {
				t.Errorf("%+v", spans)
			}
		})
	}
}

// A call that was canceled in its first try is no failure of the nodes, unless one has said no.
func TestCanceledInFirstTry(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for _, c := range []struct {
		ctx     context.Context
		tries   int
		verdict redlatch.Verdict
		want    string
	}{
		{ended, 1, redlatch.VoteUnknown, "canceled"},
		{ended, 1, redlatch.VoteGranted, "canceled"},
		{ended, 1, redlatch.VoteNotSent, "no_quorum"},
		{ended, 2, redlatch.VoteUnknown, "no_quorum"},
		{late, 1, redlatch.VoteUnknown, "no_quorum"},
	} {
		made := collect(t, nil)
		nodes := []redlatch.NodeAnswer{{Verdict: c.verdict}, {Verdict: redlatch.VoteUnknown}, {Verdict: redlatch.VoteUnknown}}
		made.observer.Observe(c.ctx, redlatch.LockFailed{Tries: c.tries, Err: fmt.Errorf("%w: %w", redlatch.ErrNoQuorum, &redlatch.QuorumError{Nodes: nodes})})
		made.expect(t, map[string]float64{"redlatch.lock.acquire.duration{error.type=" + c.want + "}": 1})
	}
}

// What a lock that was lost comes to, and one whose release failed.
func TestEnds(t *testing.T) {
	t.Parallel()
	for want, event := range map[string]redlatch.Event{
		"gone":      redlatch.LockLost{Name: "secret", Err: redlatch.ErrLost, Gone: true, Held: time.Minute},
		"max_hold":  redlatch.LockLost{Name: "secret", Err: fmt.Errorf("%w: %w", redlatch.ErrLost, redlatch.ErrMaxHold), Held: time.Minute},
		"expired":   redlatch.LockLost{Name: "secret", Err: redlatch.ErrLost, Held: time.Minute},
		"no_quorum": redlatch.LockReleased{Name: "secret", Err: redlatch.ErrNoQuorum, Held: time.Minute},
		"":          redlatch.LockReleased{Name: "secret", Held: time.Minute},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			made := collect(t, func(string) string { return "t" })
			made.observer.Observe(t.Context(), redlatch.LockAcquired{Name: "secret"})
			made.observer.Observe(t.Context(), event)
			attributes := map[bool]string{true: "", false: "error.type=" + want + ","}[want == ""] + "redlatch.lock.template=t"
			expected := map[string]float64{
				"redlatch.lock.held{redlatch.lock.template=t}":               0,
				"redlatch.lock.hold.duration{" + attributes + "}":            1,
				"redlatch.lock.losses{error.type=expired}":                   0,
				"redlatch.lock.losses{error.type=max_hold}":                  0,
				"redlatch.lock.losses{error.type=gone}":                      0,
				"redlatch.lock.acquire.tries{" + "redlatch.lock.template=t}": 0,
			}
			if series := "redlatch.lock.losses{error.type=" + want + "}"; slices.Contains([]string{"gone", "max_hold", "expired"}, want) {
				expected[series] = 1
			}
			made.expect(t, expected)
			spans := made.spans.GetSpans()
			if s := spans[len(spans)-1]; s.Name != "hold t" || (s.Status.Code == codes.Error) != (want != "") || s.Status.Description != want {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Times are in seconds, spans last as long as what they are of and have the tries and the token, and a call that holds by
// another's attempt has no round trip.
func TestTimesAndSpans(t *testing.T) {
	t.Parallel()
	made := collect(t, nil)
	for _, e := range []redlatch.Event{
		redlatch.LockAcquired{Token: 7, Waited: 3 * time.Second, Tries: 2, RoundTrip: 2 * time.Second},
		redlatch.LockReleased{Token: 7, Held: 5 * time.Second},
		redlatch.LockAcquired{Token: 8, Waited: 3 * time.Second},
		redlatch.LockFailed{Err: redlatch.ErrHeld, Waited: 3 * time.Second, Tries: 4},
	} {
		made.observer.Observe(t.Context(), e)
	}
	made.expect(t, map[string]float64{"redlatch.lock.round_trip.duration{}": 1})
	for name, want := range map[string]float64{
		"redlatch.lock.acquire.duration": 9, "redlatch.lock.round_trip.duration": 2, "redlatch.lock.hold.duration": 5,
	} {
		sum := 0.0
		for _, p := range made.raw(t)[name].(metricdata.Histogram[float64]).DataPoints {
			sum += p.Sum
		}
		if sum != want {
			t.Errorf("%s: %v, want %v", name, sum, want)
		}
	}
	var spans []string
	for _, s := range made.spans.GetSpans() {
		attributes := attribute.NewSet(s.Attributes...)
		spans = append(spans, fmt.Sprint(s.Name, " ", s.EndTime.Sub(s.StartTime), " ", attributes.Encoded(attribute.DefaultEncoder())))
	}
	want := []string{
		"lock 3s redlatch.lock.token=7,redlatch.lock.tries=2", "hold 5s redlatch.lock.token=7",
		"lock 3s redlatch.lock.token=8,redlatch.lock.tries=0", "lock 3s error.type=held,redlatch.lock.tries=4",
	}
	if !slices.Equal(spans, want) {
		t.Errorf("%q, want %q", spans, want)
	}
}

// Why a hold ended or an extension failed does not depend on the ctx of the call for the lock, which may be over.
func TestCtxIsOver(t *testing.T) {
	t.Parallel()
	made := collect(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	made.observer.Observe(ctx, redlatch.LockNotExtended{Err: errors.New("x")})
	made.observer.Observe(ctx, redlatch.LockReleased{Err: fmt.Errorf("unlock: %w", redlatch.ErrLost)})
	made.expect(t, map[string]float64{
		"redlatch.lock.extensions{error.type=_OTHER}":  1,
		"redlatch.lock.hold.duration{error.type=gone}": 1,
		"redlatch.lock.losses{error.type=gone}":        1,
	})
}

// A quarantine that nobody has asked of since its end is over.
func TestNodes(t *testing.T) {
	t.Parallel()
	made := collect(t, nil)
	observe := func(e redlatch.Event) { made.observer.Observe(t.Context(), e) }
	observe(redlatch.NodeQuarantined{Node: "a", RunID: "1", Until: time.Now().Add(-time.Second)})
	observe(redlatch.NodeQuarantined{Node: "b", RunID: "1", Until: time.Now().Add(time.Hour)})
	observe(redlatch.NodeQuarantined{Node: "b", RunID: "2", Until: time.Now().Add(time.Hour)})
	observe(redlatch.NodeAdmitted{Node: "b", RunID: "1"})
	observe(redlatch.NodeUnreachable{Node: "c", Err: errors.New("x")})
	observe(redlatch.NodeUnreachable{Node: "d", Err: errors.New("x")})
	observe(redlatch.NodeReachable{Node: "d"})
	// Two masters of a Cluster, of which the one that came first still waits.
	observe(redlatch.NodeQuarantined{Node: "e", RunID: "1", Until: time.Now().Add(time.Hour)})
	observe(redlatch.NodeQuarantined{Node: "e", RunID: "2", Until: time.Now().Add(time.Hour)})
	observe(redlatch.NodeAdmitted{Node: "e", RunID: "2"})
	// Its end has turned out to be another.
	observe(redlatch.NodeQuarantined{Node: "f", RunID: "1", Until: time.Now().Add(-time.Second)})
	observe(redlatch.NodeQuarantined{Node: "f", RunID: "1", Until: time.Now().Add(time.Hour)})
	made.expect(t, map[string]float64{
		"redlatch.node.quarantined{redlatch.node.name=a}": 0,
		"redlatch.node.quarantined{redlatch.node.name=b}": 1,
		"redlatch.node.quarantined{redlatch.node.name=c}": 0,
		"redlatch.node.quarantined{redlatch.node.name=e}": 1,
		"redlatch.node.quarantined{redlatch.node.name=f}": 1,
		"redlatch.node.unreachable{redlatch.node.name=b}": 0,
		"redlatch.node.unreachable{redlatch.node.name=c}": 1,
		"redlatch.node.unreachable{redlatch.node.name=d}": 0,
	})
	observe(redlatch.NodeAdmitted{Node: "b", RunID: "2"})
	made.expect(t, map[string]float64{"redlatch.node.quarantined{redlatch.node.name=b}": 0})
	if err := made.observer.Close(); err != nil {
		t.Fatal(err)
	}
	for series := range made.metrics(t) {
		if strings.HasPrefix(series, "redlatch.node.") {
			t.Errorf("%s after Close", series)
		}
	}
}

// Observers of two clients that have one MeterProvider add up what they count. The gauges of one end with it, and not the
// other's.
func TestTwoClients(t *testing.T) {
	t.Parallel()
	made := &collector{reader: sdkmetric.NewManualReader()}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(made.reader))
	var two [2]*otel.Observer
	for i := range two {
		observer, err := otel.New(otel.Config{MeterProvider: provider})
		if err != nil {
			t.Fatal(err)
		}
		observer.Observe(t.Context(), redlatch.LockAcquired{})
		observer.Observe(t.Context(), redlatch.NodeUnreachable{Node: "n"})
		two[i] = observer
	}
	want := map[string]float64{"redlatch.lock.held{}": 2, "redlatch.node.unreachable{redlatch.node.name=n}": 1}
	made.expect(t, want)
	if err := two[1].Close(); err != nil {
		t.Fatal(err)
	}
	made.expect(t, want)
}

// The package comment lists the metrics that there are.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	made := collect(t, nil)
	for _, e := range []redlatch.Event{
		redlatch.LockAcquired{Tries: 1}, redlatch.LockExtended{}, redlatch.LockReleased{}, redlatch.NodeReachable{Node: "a"},
	} {
		made.observer.Observe(t.Context(), e)
	}
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^//\t(redlatch\.\S+) +(histogram|counter|up-down counter|gauge),`).FindAllStringSubmatch(string(text), -1) {
		listed[m[1]] = true
	}
	for name := range made.raw(t) {
		if !listed[name] {
			t.Errorf("%s is not listed", name)
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("%s is listed, and not made", name)
	}
}
