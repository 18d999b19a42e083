// Cron-once is a job that cron starts on several machines at once, and that runs on one of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
)

func main() {
	client, err := redlatch.Open(redlatch.Config{Nodes: strings.Split(os.Getenv("REDLATCH_NODES"), ",")})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = client.TryDo(context.Background(), "nightly-report", report,
		redlatch.WithMinHold(20*time.Second)) // longer than the machines' clocks differ
	if err != nil && !errors.Is(err, redlatch.ErrHeld) { // held: another machine does it, or has done it
		log.Fatal(err)
	}
}

// report is the job. Its ctx ends when the lock is lost.
func report(context.Context) error {
	_, err := fmt.Println("the report")
	return err
}
