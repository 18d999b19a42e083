//go:build !race

package main

// increments is how often each of the processes increments.
const increments = 15
