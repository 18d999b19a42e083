//go:build !linux

package main

// tortureCommands is empty, as `redlatch-torture run` needs Linux: it stops processes and makes
// network namespaces.
var tortureCommands []command
