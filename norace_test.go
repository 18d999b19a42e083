//go:build !race

package redlatch_test

const raceEnabled = false
