package etcd_test

import "testing"

func TestHolderCrashes(t *testing.T)      { engine.HolderCrashes(t) }
func TestHolderIsPaused(t *testing.T)     { engine.HolderIsPaused(t) }
func TestFirstWaiterCrashes(t *testing.T) { engine.FirstWaiterCrashes(t) }
func TestLostReplies(t *testing.T)        { engine.LostReplies(t) }
func TestLeaderDies(t *testing.T)         { engine.LeaderDies(t) }
func TestAllRestart(t *testing.T)         { engine.AllRestart(t) }
