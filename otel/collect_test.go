package otel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redlatch/redlatch/otel"
)

// collector has what an Observer makes.
type collector struct {
	observer *otel.Observer
	tracer   *sdktrace.TracerProvider
	reader   *sdkmetric.ManualReader
	spans    *tracetest.InMemoryExporter
}

// collect returns an Observer whose metrics and spans are kept in memory.
func collect(t *testing.T, template func(string) string) *collector {
	t.Helper()
	c := &collector{reader: sdkmetric.NewManualReader(), spans: tracetest.NewInMemoryExporter()}
	c.tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(c.spans))
	observer, err := otel.New(otel.Config{
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(c.reader)),
		TracerProvider: c.tracer,
		Template:       template,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.observer = observer
	return c
}

// metrics are the counts and the values of all series: "name{key=value,...}". A histogram is its count.
func (c *collector) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	found := make(map[string]float64)
	for name, data := range c.raw(t) {
		add := func(set attribute.Set, value float64) {
			found[name+"{"+set.Encoded(attribute.DefaultEncoder())+"}"] = value
		}
		switch data := data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, float64(p.Count))
			}
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, float64(p.Value))
			}
		case metricdata.Gauge[int64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, float64(p.Value))
			}
		default:
			t.Errorf("%s is a %T", name, data)
		}
	}
	return found
}

// raw are the metrics by their names.
func (c *collector) raw(t *testing.T) map[string]metricdata.Aggregation {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := c.reader.Collect(context.WithoutCancel(t.Context()), &all); err != nil {
		t.Fatal(err)
	}
	found := make(map[string]metricdata.Aggregation)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			found[m.Name] = m.Data
		}
	}
	return found
}

// text is all that was made, to be searched for what must not be in it.
func (c *collector) text(t *testing.T) string {
	t.Helper()
	spans, err := json.Marshal(c.spans.GetSpans())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(c.metrics(t), string(spans))
}

// expect expects series to have these values.
func (c *collector) expect(t *testing.T, want map[string]float64) {
	t.Helper()
	got := c.metrics(t)
	for series, value := range want {
		if v, ok := got[series]; !ok || v != value {
			t.Errorf("%s is %v, %t, want %v, of %v", series, v, ok, value, got)
		}
	}
}
