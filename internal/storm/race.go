//go:build race

package storm

// raceEnabled: the race detector is on, and all is some ten times slower.
const raceEnabled = true
