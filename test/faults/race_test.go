//go:build race

package faults

// raceEnabled: the race detector is on, and all is some ten times slower.
const raceEnabled = true
