package otel_test

import (
	"log"
	"strings"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/otel"
)

// Metrics and spans go to the global providers, and tell invoices from other locks.
func Example() {
	observer, err := otel.New(otel.Config{
		Template: func(name string) string {
			kind, _, _ := strings.Cut(name, "/")
			return kind + "/{id}"
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	client, err := redlatch.Open(redlatch.Config{
		Nodes:    []string{"redis://10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379"},
		Observer: observer,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}
