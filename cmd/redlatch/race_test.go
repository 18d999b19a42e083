//go:build race

package main

// increments is how often each of the processes increments, less where a
// process takes ten times as long to start.
const increments = 10
