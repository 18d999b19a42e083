package main

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// selectors are the series that the critical alerts look at, by the names of the alerts.
func selectors(t *testing.T) map[string][]*parser.VectorSelector {
	t.Helper()
	of := make(map[string][]*parser.VectorSelector)
	for _, rule := range rules(t) {
		if rule.Labels["severity"] != "critical" {
			continue
		}
		parsed, err := promQL.ParseExpr(rule.Expr)
		if err != nil {
			t.Fatal(err)
		}
		parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
			if s, ok := node.(*parser.VectorSelector); ok {
				of[rule.Alert] = append(of[rule.Alert], s)
			}
			return nil
		})
	}
	return of
}

// above0 is how many series that s selects are above 0.
func above0(t *testing.T, registry *prometheus.Registry, s *parser.VectorSelector) (n int) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name, value := family.GetName(), m.GetGauge().GetValue()+m.GetCounter().GetValue()
			if h := m.GetHistogram(); h != nil {
				name, value = name+"_count", float64(h.GetSampleCount())
			}
			labels := map[string]string{"__name__": name}
			for _, label := range m.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			selected := value > 0
			for _, matcher := range s.LabelMatchers {
				selected = selected && matcher.Matches(labels[matcher.Name])
			}
			if selected {
				n++
			}
		}
	}
	return n
}

// A call that waits because two of three nodes are away, without a deadline, is told by a critical
// alert: it has not failed.
func TestAlertForCallsThatWait(t *testing.T) {
	registry := prometheus.NewRegistry()
	observer, err := observe(registry)
	if err != nil {
		t.Fatal(err)
	}
	var proxies []*redistest.Proxy
	var urls []string
	for range 3 {
		proxy := redistest.NewProxy(t, redistest.New(t).Addr())
		proxies, urls = append(proxies, proxy), append(urls, proxy.URL())
	}
	client, err := redlatch.Open(redlatch.Config{Nodes: urls, NoQuarantine: true, Observer: observer})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	defer func() { cancel(); <-over; client.Close() }()
	for _, proxy := range proxies[:2] {
		if err := proxy.Refuse(true); err != nil {
			t.Fatal(err)
		}
		proxy.Cut()
	}
	go func() { over <- client.Do(ctx, "invoice/42", func(context.Context) error { return nil }) }()
	critical := selectors(t)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for _, all := range critical {
			for _, s := range all {
				if above0(t, registry, s) >= 2 { // a node alone is no majority
					return
				}
			}
		}
	}
	t.Error("nothing that a critical alert looks at says that no lock can be had")
}
