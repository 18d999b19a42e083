//go:build !linux

// Package torture is `redlatch-torture run`, which needs Linux.
package torture
