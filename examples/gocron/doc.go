// Package gocronlock has jobs of gocron (github.com/go-co-op/gocron/v2) run on one of several
// machines. It is an example: copy it, or the part of it that you need.
//
// With a [Locker] each run of a job is for whoever is first, and the machines share the work:
//
//	gocron.NewScheduler(gocron.WithDistributedLocker(
//		gocronlock.NewLocker(client, redlatch.WithMinHold(20*time.Second))))
//
// With an [Elector] one machine runs all of them until it is gone:
//
//	elector := gocronlock.NewElector(client, "cron/leader")
//	defer elector.Close()
//	gocron.NewScheduler(gocron.WithDistributedElector(elector))
//
// gocron tells a job nothing of its lock. One that must stop when the lock is lost takes it itself,
// by [Once].
package gocronlock
