//go:build race

package redlatch_test

// raceEnabled: the race detector is on, and all is some ten times slower.
const raceEnabled = true
