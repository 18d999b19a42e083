// Package seed is where random tests draw from. Nothing but tests imports it.
package seed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Of returns what a random test draws from, and logs it. REDLATCH_SEED replays a run.
func Of(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if env := os.Getenv("REDLATCH_SEED"); env != "" {
		var err error
		if seed, err = strconv.ParseUint(env, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("REDLATCH_SEED=%d replays this", seed)
	return seed
}
