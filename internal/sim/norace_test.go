//go:build !race

package sim_test

// simWorlds is how many worlds TestSim runs.
const simWorlds = 1920
