package sim

// Mutation is a rule of the lock that is broken on purpose.
type Mutation uint8

// The mutations, by what they break.
const (
	None Mutation = iota

	// In a server, as if the script said so.
	ExtendCreates      // extend re-creates a record that is gone
	ExtendShortens     // extend may shorten a record's life
	ReleaseBlind       // release deletes without comparing the holder
	AcquireOverwrites  // acquire sets without NX
	ConfirmSkipped     // a token is not written back
	ConfirmUnguarded   // a token is written back without comparing record and counter
	CounterFromClock   // a counter is not raised past the one before
	CounterUnclamped   // a proposal may be any distance from the server's clock
	MarkerIgnored      // the admission key is not read
	UptimeLies         // a server says it has been up for ever
	PromotionHidden    // a server does not say that it was promoted
	RepairCreatesBlind // repair does not look at the counter nor the admission

	// In a connection, as if the driver or the vote did so.
	DriftIgnored      // a record lives no longer than the validity
	OneHolderID       // all tries of a call have one holder id
	ReplyCountedTwice // one node's grant counts for another that was asked
	ReleaseOvertakes  // a release travels on a connection of its own
	RepeatedGrant     // a command whose reply was lost is sent again, and a token is written back by the holder id alone
	NoScriptEval      // NOSCRIPT is answered with the script's text
	ReachableQuorum   // nodes that cannot be reached are not counted

	// In the settings.
	FenceOff // nodes that may have forgotten vote at once

	// In a clock.
	OneClock     // the clock that runs through suspend is not read
	WallDeadline // deadlines are kept by the wall clock

	Mutations // how many there are
)

var mutationNames = [Mutations]string{
	None:               "none",
	ExtendCreates:      "extend re-creates a record",
	ExtendShortens:     "extend shortens a record",
	ReleaseBlind:       "release without compare",
	AcquireOverwrites:  "acquire without NX",
	ConfirmSkipped:     "token without write-back",
	ConfirmUnguarded:   "write-back not guarded",
	CounterFromClock:   "counter not raised",
	CounterUnclamped:   "counter not clamped",
	MarkerIgnored:      "admission key not read",
	UptimeLies:         "uptime not looked at",
	PromotionHidden:    "promotion not looked at",
	RepairCreatesBlind: "repair without looking",
	DriftIgnored:       "drift 0",
	OneHolderID:        "one holder id for all tries of a call",
	ReplyCountedTwice:  "a repeated reply counted twice",
	ReleaseOvertakes:   "release overtakes acquire",
	RepeatedGrant:      "repeated grant, write-back by the id alone",
	NoScriptEval:       "NOSCRIPT answered with EVAL",
	ReachableQuorum:    "quorum of the reachable nodes",
	FenceOff:           "no restart fence",
	OneClock:           "suspend not seen",
	WallDeadline:       "deadline by the wall clock",
}

func (m Mutation) String() string { return mutationNames[m] }

// weather returns the weather that brings out the mutation, where others hardly
// do.
func (m Mutation) weather() (Weather, bool) {
	switch m {
	case UptimeLies, PromotionHidden, MarkerIgnored, NoScriptEval, FenceOff:
		return Servers, true
	case DriftIgnored:
		return Clocks, true
	case ConfirmUnguarded, RepairCreatesBlind, RepeatedGrant, ExtendCreates:
		return Tight, true
	case ReachableQuorum:
		return Lossy, true
	}
	return 0, false
}
