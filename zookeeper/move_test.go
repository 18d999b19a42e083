package zookeeper_test

import "testing"

func TestMove(t *testing.T)     { engine.Move(t) }
func TestMoveLost(t *testing.T) { reconnects(t); engine.MoveLost(t) }
