package redisconn

import "sync/atomic"

// checker follows both directions of one connection and finds the first thing that cannot be a
// reply to the commands that were sent. One goroutine writes at a time, and one reads. After an
// error the connection must not be used.
//
// The checker counts. A surplus reply that comes while a further command is under way is taken for
// the reply to that command, and found out when the last command has been answered.
type checker struct {
	requests requests
	pending  pending
	replies  replies
	// redirections, if set, counts the replies that name another server. It counts each before the
	// client sees it.
	redirections *atomic.Uint64
	// resp2, if set, tells whether the connection was last asked to speak RESP2.
	resp2 *atomic.Bool
}
