package otel_test

import (
	"testing"

	global "go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/otel"
)

// By default metrics and spans go to the global providers, without a template.
func TestGlobalProviders(t *testing.T) {
	made := &collector{reader: sdkmetric.NewManualReader(), spans: tracetest.NewInMemoryExporter()}
	meters, tracers := global.GetMeterProvider(), global.GetTracerProvider()
	t.Cleanup(func() { global.SetMeterProvider(meters); global.SetTracerProvider(tracers) })
	global.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(made.reader)))
	global.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(made.spans)))
	observer, err := otel.New(otel.Config{})
	if err != nil {
		t.Fatal(err)
	}
	observer.Observe(t.Context(), redlatch.LockAcquired{Name: "secret"})
	made.expect(t, map[string]float64{"redlatch.lock.held{}": 1})
	if spans := made.spans.GetSpans(); len(spans) != 1 || spans[0].Name != "lock" {
		t.Errorf("%+v", spans)
	}
}
