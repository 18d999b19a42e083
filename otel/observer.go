package otel

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
)

// scope names the instrumentation.
const scope = "github.com/redlatch/redlatch/otel"

// Config says where the metrics and the spans go. The zero value of each field is its default.
type Config struct {
	// MeterProvider and TracerProvider default to the global ones. Those of the noop packages make
	// nothing.
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider

	// Template returns a text that stands for many names of locks, such as "invoice/{id}" for
	// "invoice/42". It becomes an attribute of all metrics and spans of locks. Template must return
	// one of a few texts, or "" for no attribute. It is called for each event, must not block, and
	// must be safe for concurrent use. Defaults to no attribute.
	Template func(name string) string
}

// Observer is a redlatch.Observer for one client. It is safe for concurrent use, and does not
// block.
//
// A program with several clients makes one for each. If these have one MeterProvider, what they
// count adds up. But it keeps one value for a node: the gauges then say what one of the clients
// knows, and not that another cannot reach the node.
type Observer struct {
	template    func(name string) string
	tracer      trace.Tracer
	instruments instruments
	gauges      metric.Registration

	mu sync.Mutex // guards what follows; nothing is called while it is held
	// nodes are the nodes that had an event.
	nodes map[string]*node
}

// node is what is known of a node.
type node struct {
	attributes  metric.MeasurementOption
	unreachable bool
	// quarantined has the runs in quarantine, and until when each is.
	quarantined map[string]time.Time
}

// New returns an Observer. The error is that of the MeterProvider, if it refused an instrument. New
// does not block.
func New(c Config) (*Observer, error) {
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if c.Template == nil {
		c.Template = func(string) string { return "" }
	}
	o := &Observer{template: c.Template, tracer: c.TracerProvider.Tracer(scope), nodes: make(map[string]*node)}
	meter := c.MeterProvider.Meter(scope)
	if err := o.instruments.make(meter); err != nil {
		return nil, err
	}
	var err error
	if o.gauges, err = meter.RegisterCallback(o.report, o.instruments.quarantined, o.instruments.unreachable); err != nil {
		return nil, err
	}
	return o, nil
}

// Close ends the gauges of nodes. Call it after the client was closed. An Observer that lasts for
// the whole life of a program need not be closed.
func (o *Observer) Close() error { return o.gauges.Unregister() }

// Observe implements redlatch.Observer.
func (o *Observer) Observe(ctx context.Context, event redlatch.Event) {
	now := time.Now()
	switch e := event.(type) {
	case redlatch.LockAcquired:
		of := o.attributes(e.Name)
		o.instruments.acquire.Record(ctx, e.Waited.Seconds(), of.metric())
		o.instruments.tries.Add(ctx, int64(e.Tries), of.metric())
		if e.Tries > 0 { // otherwise it holds by another's attempt
			o.instruments.roundTrip.Record(ctx, e.RoundTrip.Seconds(), of.metric())
		}
		o.instruments.held.Add(ctx, 1, of.metric())
		o.span(ctx, "lock", of, now, e.Waited, triesKey.Int(e.Tries), token(e.Token))
	case redlatch.LockFailed:
		of := o.attributes(e.Name)
		o.instruments.tries.Add(ctx, int64(e.Tries), of.metric())
		of.failure = failure(ctx, e.Err)
		if e.Tries == 1 && ctx.Err() == context.Canceled && unanswered(e.Err) {
			of.failure = canceled
		}
		o.instruments.acquire.Record(ctx, e.Waited.Seconds(), of.metric())
		o.span(ctx, "lock", of, now, e.Waited, triesKey.Int(e.Tries))
	case redlatch.LockExtended:
		o.instruments.extensions.Add(ctx, 1, o.attributes(e.Name).metric())
	case redlatch.LockNotExtended:
		of := o.attributes(e.Name)
		of.failure = failure(context.Background(), e.Err)
		o.instruments.extensions.Add(ctx, 1, of.metric())
	case redlatch.LockLost:
		o.end(ctx, e.Name, e.Token, now, e.Held, loss(e))
	case redlatch.LockReleased:
		o.end(ctx, e.Name, e.Token, now, e.Held, failure(context.Background(), e.Err))
	default:
		o.observeNode(event)
	}
}

// end takes in the end of a hold.
func (o *Observer) end(ctx context.Context, name string, fencing uint64, now time.Time, held time.Duration, failure string) {
	of := o.attributes(name)
	o.instruments.held.Add(ctx, -1, of.metric())
	of.failure = failure
	o.instruments.hold.Record(ctx, held.Seconds(), of.metric())
	if slices.Contains(losses, failure) {
		o.instruments.losses.Add(ctx, 1, attributes{failure: failure}.metric())
	}
	o.span(ctx, "hold", of, now, held, token(fencing))
}

// observeNode takes in an event of a node.
func (o *Observer) observeNode(event redlatch.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch e := event.(type) {
	case redlatch.NodeQuarantined:
		o.node(e.Node).quarantined[e.RunID] = e.Until
	case redlatch.NodeAdmitted:
		delete(o.node(e.Node).quarantined, e.RunID)
	case redlatch.NodeUnreachable:
		o.node(e.Node).unreachable = true
	case redlatch.NodeReachable:
		o.node(e.Node).unreachable = false
	}
}

// node returns what is known of a node. The caller holds o.mu.
func (o *Observer) node(name string) *node {
	n := o.nodes[name]
	if n == nil {
		n = &node{attributes: metric.WithAttributeSet(attribute.NewSet(nodeKey.String(name))), quarantined: make(map[string]time.Time)}
		o.nodes[name] = n
	}
	return n
}

// report reports the gauges of nodes to to.
func (o *Observer) report(_ context.Context, to metric.Observer) error {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.nodes {
		for run, until := range n.quarantined {
			if now.After(until) { // the server has gone, or nobody has asked it since
				delete(n.quarantined, run)
			}
		}
		to.ObserveInt64(o.instruments.quarantined, number(len(n.quarantined) > 0), n.attributes)
		to.ObserveInt64(o.instruments.unreachable, number(n.unreachable), n.attributes)
	}
	return nil
}

func number(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
