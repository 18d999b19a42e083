package faults

import (
	"os"
	"testing"

	"github.com/redlatch/redlatch/internal/locktest"
)

func TestMain(m *testing.M) {
	if os.Getenv(starvedPasses) != "" || os.Getenv(spinner) != "" {
		starvedChild()
		return
	}
	locktest.Main(m)
}
