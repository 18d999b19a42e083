//go:build race

package sim_test

// simWorlds is how many worlds TestSim runs, less where each takes ten times as
// long.
const simWorlds = 100
