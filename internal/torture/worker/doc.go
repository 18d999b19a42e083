// Package worker is the worker's half of `redlatch-torture run`: a process that
// takes locks in turn, changes what they protect, and writes down what it
// believes as it goes. The tool has workers of Redlatch; bench has those of
// other libraries, which differ in their [Locker] only.
//
// # What a worker is told and tells
//
// The first line of its stdin is an [Assignment], in JSON. It answers with a line
// {"ready":true}, starts at a line "go", lets go of everything and answers
// {"rested":true} at a line "rest", and ends, its locks released, when stdin does.
// A worker in another language is given the same.
//
// # What a worker writes down
//
// Each of its callers writes one JSON line an [Event], each by one write to a file opened for appending, at
// the moment at which it is so: what a worker that is killed did is there to be
// judged as well. Times are CLOCK_MONOTONIC's, which all processes of a machine
// share.
package worker
