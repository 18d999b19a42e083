// Package faults has the tests of nodes and networks that fail, hang, refuse or say nonsense,
// and of processes that are stopped or starved, on real servers.
package faults
