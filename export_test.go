package redlatch

// KindOf is what a vote for op amounts to that did not succeed.
func KindOf(op string, nodes []NodeAnswer) error { return newQuorumError(op, "x", nodes).kind }
