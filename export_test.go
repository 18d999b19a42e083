package redlatch

// MaxReleases is how many locks Close releases at once.
const MaxReleases = maxReleases

// KindOf returns what a failed vote for op amounts to.
func KindOf(op string, nodes []NodeAnswer) error { return newQuorumError(op, "x", nodes).kind }

// RingInVain acts as if the alarm of l had rung and l had been found at its end, though l is still
// held.
func RingInVain(l *Lock) {
	l.alarm.Stop()
	l.tick()
}
