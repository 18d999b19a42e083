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

// The verdicts of a NodeAnswer.
//
// Deprecated: use VoteUnknown and so on.
const (
	Unknown       = VoteUnknown
	NotSent       = VoteNotSent
	Granted       = VoteGranted
	NotOurs       = VoteNotOurs
	NotAdmitted   = VoteNotAdmitted
	Refused       = VoteRefused
	NotReplicated = VoteNotReplicated
	Unavailable   = VoteUnavailable
)
