//go:build !linux

package worker

// Now is for Linux, where the torture runs.
func Now() int64 { panic("worker: needs Linux") }
