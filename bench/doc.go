// Package bench measures what a lock and its release cost, side by side with
// other libraries and with the least that any lock could do. There is nothing
// to import: the benchmarks are its tests.
//
// # What is compared
//
// Only what ran in the same round. A machine that does other things too is
// twice as fast in one second as in the next, so the contestants take turns in
// slices of a fraction of a second, in rounds that each begin with another of
// them. What is reported are medians over the rounds of ratios within a round.
// The floor (see floor) is what the others are divided by.
//
// All contestants run in one process, against the same servers, with the
// collector run before each slice. Each is set up as its own README shows. A
// caller locks and unlocks one name of its own over and over, so nobody
// contends: waiting is measured elsewhere.
package bench
