//go:build !linux

package tortured

// Now is for Linux, where the torture runs.
func Now() int64 { panic("tortured: needs Linux") }
