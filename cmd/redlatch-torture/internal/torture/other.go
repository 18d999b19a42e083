//go:build !linux

// Package torture is `redlatch-torture run`. It needs Linux, and is empty on this system.
package torture
