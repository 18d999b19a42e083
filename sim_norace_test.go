//go:build !race

package redlatch_test

// simWorlds is how many worlds TestSim runs.
const simWorlds = 2000
