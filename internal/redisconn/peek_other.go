//go:build !unix

package redisconn

const canPeek = false

func nothingToRead(uintptr) bool { return false }
