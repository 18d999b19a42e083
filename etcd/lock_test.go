package etcd_test

import "testing"

func TestOneHolder(t *testing.T)            { engine.OneHolder(t) }
func TestExclusion(t *testing.T)            { engine.Exclusion(t) }
func TestOrder(t *testing.T)                { engine.Order(t) }
func TestWakeUp(t *testing.T)               { engine.WakeUp(t) }
func TestExtendNeverShortens(t *testing.T)  { engine.ExtendNeverShortens(t) }
func TestRenewal(t *testing.T)              { engine.Renewal(t) }
func TestTakeover(t *testing.T)             { engine.Takeover(t) }
func TestCancel(t *testing.T)               { engine.Cancel(t) }
func TestMinHoldOutlastsClose(t *testing.T) { engine.MinHoldOutlastsClose(t) }
func TestCloseReleases(t *testing.T)        { engine.CloseReleases(t) }
func TestDetach(t *testing.T)               { engine.Detach(t) }
func TestDetachedEnds(t *testing.T)         { engine.DetachedEnds(t) }
func TestExtendedByID(t *testing.T)         { engine.ExtendedByID(t) }
func TestHolderIsExtendedByID(t *testing.T) { engine.HolderIsExtendedByID(t) }
func TestHolderIsReleasedByID(t *testing.T) { engine.HolderIsReleasedByID(t) }
func TestList(t *testing.T)                 { engine.List(t) }
