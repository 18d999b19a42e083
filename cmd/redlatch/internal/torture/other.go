//go:build !linux

// Package torture is `redlatch torture`, which needs Linux.
package torture
