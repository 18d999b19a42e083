// Command prometheus takes locks, and serves the metrics of that for Prometheus at /metrics:
//
//	REDLATCH_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3 go run . -listen :2112
//
// Beside it are alerts.yml, the alerts, and dashboard.json, a dashboard for Grafana.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/otel"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:2112", "where /metrics is served")
	flag.Parse()
	registry := prometheus.NewRegistry()
	observer, err := observe(registry)
	if err != nil {
		log.Fatal(err)
	}
	client, err := redlatch.Open(redlatch.Config{
		Nodes:    strings.Split(os.Getenv("REDLATCH_NODES"), ","),
		Observer: observer,
	})
	if err != nil {
		log.Fatal(err)
	}
	go work(client)
	http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Addr: *listen, ReadHeaderTimeout: time.Second}
	log.Fatal(server.ListenAndServe())
}

// observe returns an Observer whose metrics are in registry.
func observe(registry *prometheus.Registry) (*otel.Observer, error) {
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	return otel.New(otel.Config{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
		Template:      func(name string) string { kind, _, _ := strings.Cut(name, "/"); return kind + "/{id}" },
	})
}

// work takes one lock of ten after the other, for a while each.
func work(client *redlatch.Client) {
	for {
		name := fmt.Sprintf("invoice/%d", rand.IntN(10))
		err := client.Do(context.Background(), name, func(context.Context) error {
			time.Sleep(rand.N(100 * time.Millisecond))
			return nil
		})
		if err != nil {
			log.Print(err)
			time.Sleep(time.Second) // some errors come at once, each time
		}
	}
}
