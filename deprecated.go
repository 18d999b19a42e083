package redlatch

// FenceMode is the type of Config.RestartFence.
//
// Deprecated: use Config.NoQuarantine.
type FenceMode uint8

// The modes of Config.RestartFence.
//
// Deprecated: use Config.NoQuarantine.
const (
	FenceOn  FenceMode = iota // the quarantine
	FenceOff                  // none, as with NoQuarantine
)
