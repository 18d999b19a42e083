//go:build !linux

package main

// tortureCommands are for Linux: the torture stops processes and makes network
// namespaces.
var tortureCommands []command
