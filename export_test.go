package redlatch

// MaxReleases is how many locks Close releases at once.
const MaxReleases = maxReleases

// KindOf is what a vote for op amounts to that did not succeed.
func KindOf(op string, nodes []NodeAnswer) error { return newQuorumError(op, "x", nodes).kind }

// RingInVain has the alarm of l have rung, and l be found at its end, though it is held still.
func RingInVain(l *Lock) {
	l.alarm.Stop()
	l.tick()
}
