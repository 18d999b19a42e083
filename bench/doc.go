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
// contends.
//
// # Waiting
//
// In BenchmarkContention all want one name: separate clients, or the callers of one.
// What counts is how long each waited, and who got how much; those who lock
// again at once, before anybody who waits can, have the best rate and median and
// leave the others the tail. Each slice begins with a time that does not count,
// in which all come at once.
package bench
