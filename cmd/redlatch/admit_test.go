package main

import (
	"testing"
	"time"
)

// A node that is far away is waited for, however soon those nearby have answered.
func TestAdmitWaitsForADistantNode(t *testing.T) {
	before := started
	defer func() { started = before }()
	started = time.Now()
	for given, least := range map[time.Duration]time.Duration{0: defaultNodeTimeout, time.Second: time.Second} {
		a := admitCmd{}
		a.NodeTimeout = given
		if rest := a.rest(); rest < least {
			t.Errorf("with --node-timeout %v the last node is waited for for %v, want %v at least", given, rest, least)
		}
	}
}
