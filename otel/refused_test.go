package otel_test

import (
	"errors"
	"testing"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/redlatch/redlatch/otel"
)

// refusing is a MeterProvider that refuses a counter, or the callback of the gauges.
type refusing struct {
	noop.MeterProvider
	counter, callback error
}

func (r refusing) Meter(string, ...metric.MeterOption) metric.Meter {
	return refusingMeter{refusing: r}
}

type refusingMeter struct {
	noop.Meter
	refusing
}

func (m refusingMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return noop.Int64Counter{}, m.counter
}

func (m refusingMeter) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	return noop.Registration{}, m.callback
}

// What the MeterProvider refuses is the error of New.
func TestRefusedInstrument(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for what, provider := range map[string]refusing{"a counter": {counter: refused}, "the callback": {callback: refused}} {
		if o, err := otel.New(otel.Config{MeterProvider: provider}); o != nil || !errors.Is(err, refused) {
			t.Errorf("%s: %v, %v", what, o, err)
		}
	}
	if _, err := otel.New(otel.Config{MeterProvider: refusing{}}); err != nil {
		t.Error(err)
	}
}
