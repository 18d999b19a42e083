package otel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// instruments are the metrics.
type instruments struct {
	acquire, roundTrip, hold metric.Float64Histogram
	tries, extensions        metric.Int64Counter
	losses                   metric.Int64Counter
	held                     metric.Int64UpDownCounter
	quarantined, unreachable metric.Int64ObservableGauge
}

// These are the bounds of histograms, in seconds: a step takes less than a millisecond on a near
// network, a wait can take minutes.
var (
	waits = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	trips = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	holds = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 1800, 3600}
)

// make creates the instruments.
func (i *instruments) make(m metric.Meter) error {
	var errs [9]error
	i.acquire, errs[0] = m.Float64Histogram("redlatch.lock.acquire.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the call for a lock to its grant or its failure."), metric.WithExplicitBucketBoundaries(waits...))
	i.roundTrip, errs[1] = m.Float64Histogram("redlatch.lock.round_trip.duration", metric.WithUnit("s"),
		metric.WithDescription("Time that the attempts took by which locks were granted."), metric.WithExplicitBucketBoundaries(trips...))
	i.hold, errs[2] = m.Float64Histogram("redlatch.lock.hold.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the grant of a lock to its release or its loss."), metric.WithExplicitBucketBoundaries(holds...))
	i.tries, errs[3] = m.Int64Counter("redlatch.lock.acquire.tries", metric.WithUnit("{try}"),
		metric.WithDescription("Attempts that were made for calls for locks."))
	i.extensions, errs[4] = m.Int64Counter("redlatch.lock.extensions", metric.WithUnit("{extension}"),
		metric.WithDescription("Extensions of locks, those that failed included."))
	i.held, errs[5] = m.Int64UpDownCounter("redlatch.lock.held", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that are held."))
	i.quarantined, errs[6] = m.Int64ObservableGauge("redlatch.node.quarantined", metric.WithUnit("{node}"),
		metric.WithDescription("Whether a node is known not to vote yet, as it may have forgotten locks."))
	i.unreachable, errs[7] = m.Int64ObservableGauge("redlatch.node.unreachable", metric.WithUnit("{node}"),
		metric.WithDescription("Whether a node cannot be connected to, or does not answer in time."))
	i.losses, errs[8] = m.Int64Counter("redlatch.lock.losses", metric.WithUnit("{loss}"),
		metric.WithDescription("Locks that were lost while they were held, or found lost by their release."))
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	// The first loss must be seen as an increase, not as a series that begins with it.
	for _, reason := range losses {
		i.losses.Add(context.Background(), 0, attributes{failure: reason}.metric())
	}
	return nil
}
