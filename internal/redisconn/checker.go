package redisconn

// checker follows both directions of one connection and finds the first thing that
// cannot be a reply to the commands that were sent. One goroutine writes at a time, and
// one reads. After an error the connection is not to be used.
type checker struct {
	requests requests
	pending  pending
	replies  replies
}
