package restart

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A server loses a lock, and its deployment is changed to a smaller MaxTTL while it is kept out. Then its clock is set
// back to before that, and it may restart. It is kept out for what was left of its quarantine all the same.
func TestClockSetBackAfterAReset(t *testing.T) {
	t.Parallel()
	for name, restarts := range map[string]bool{"running": false, "restarted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				server := redistest.New(t, redistest.Options{Binary: binary, ClockShim: true})
				small := locktest.WithQuarantine(server.URL())
				held := lostByAFlush(t, server, locktest.WithMaxTTL(small, time.Minute))
				client := locktest.Open(t, small)
				if err := client.Reset(t.Context(), "n0"); err != nil {
					t.Fatal(err)
				}
				if err := server.StepClock(-time.Minute); err != nil {
					t.Fatal(err)
				}
				if restarts {
					locktest.Do(t, server, "SAVE")
					locktest.KillAndRestart(t, server)
				}
				lock, err := client.Lock(locktest.Within(t, 3*locktest.RestartQuarantine), "x")
				locktest.IsKeptOut(t, held, lock, err)
			})
		})
	}
}

// A deployment is changed to a smaller MaxTTL, and then a replica takes its master's place whose clock is ahead of that
// one's. It is kept out for the longer wait all the same: nobody compares the clocks of two servers.
func TestResetAndAPromotedClockAhead(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		master, replica := redistest.New(t, redistest.Options{Binary: binary}), redistest.New(t, redistest.Options{Binary: binary, ClockShim: true})
		if err := replica.StepClock(time.Hour); err != nil {
			t.Fatal(err)
		}
		follow(t, replica, master)
		small := locktest.WithQuarantine(master.URL())
		large := locktest.WithMaxTTL(small, time.Minute)
		old := locktest.Open(t, large)
		locktest.Vouch(t, old, "n0")
		held := locktest.TryLock(t, old, "x", redlatch.WithoutRenewal())
		if err := locktest.Open(t, small).Reset(t.Context(), "n0"); err != nil {
			t.Fatal(err)
		}
		note := "redlatch:{" + small.Deployment + "}:quarantine"
		locktest.Await(t, "the replica has the note", func() bool { return locktest.Value(t, replica, note) != "" })
		master.Kill()
		locktest.Do(t, replica, "REPLICAOF", "NO", "ONE")
		client := locktest.Open(t, locktest.Through(small, replica.URL()))
		lock, err := client.Lock(locktest.Within(t, 3*locktest.RestartQuarantine), "x")
		locktest.IsKeptOut(t, held, lock, err)
	})
}

// A server's clock was ahead, is set right, and the server forgets its counters. After that tokens are larger than before
// if its clock was ahead by no more than MaxTTL + 2 s, and smaller if it was ahead by more than the quarantine: the clock is
// all that is left of them. By so much two servers may differ where their clocks are MaxTTL/2 + 1 s apart, and one is
// set back by as much. The clients' clocks are off as far as servers bear.
func TestTokensAfterAClockSetBack(t *testing.T) {
	t.Parallel()
	for ahead, grow := range map[time.Duration]bool{locktest.RestartTTL + 2*time.Second: true, time.Hour: false} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			locktest.EachFlavor(t, func(t *testing.T, binary string) {
				server := redistest.New(t, redistest.Options{Binary: binary, ClockShim: true})
				if err := server.StepClock(ahead); err != nil {
					t.Fatal(err)
				}
				config := locktest.WithQuarantine(server.URL())
				fast, slow := locktest.OpenAt(t, config, 2*time.Hour), locktest.OpenAt(t, config, -2*time.Hour)
				locktest.Vouch(t, fast, "n0")
				earlier := locktest.TryLock(t, fast, "x", redlatch.WithoutRenewal())
				locktest.Unlock(t, earlier)
				if err := server.StepClock(-ahead); err != nil {
					t.Fatal(err)
				}
				locktest.Do(t, server, "FLUSHALL")
				later, err := slow.Lock(locktest.Within(t, locktest.RestartQuarantine+locktest.Patience), "x")
				if err != nil {
					t.Fatal(err)
				}
				if grew := later.Token() > earlier.Token(); grew != grow {
					t.Errorf("the tokens are %d, then %d", earlier.Token(), later.Token())
				}
			})
		})
	}
}

// A server saves a key that readers have, a writer has the lock after them, and the server is started from that file by a
// clock that was set back by less than 4 s. The key has expired when the server votes: readers do not join those of before,
// whose tokens are smaller than the writer's.
func TestReadersAfterAClockSetBack(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary, ClockShim: true})
		client := locktest.Open(t, locktest.WithMaxTTL(locktest.WithQuarantine(server.URL()), 6*time.Second))
		locktest.Vouch(t, client, "n0")
		reader := locktest.TryLock(t, client, "x", redlatch.WithShared(), redlatch.WithoutRenewal())
		locktest.Do(t, server, "SAVE")
		_ = reader.Unlock(t.Context()) // else its client would release it when its time is over
		locktest.Do(t, server, "DEL", "x")
		writer := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())
		if err := server.StepClock(-3 * time.Second); err != nil {
			t.Fatal(err)
		}
		locktest.KillAndRestart(t, server)
		later, err := client.RLock(locktest.Within(t, 10*time.Second+locktest.Patience), "x")
		if err != nil {
			t.Fatal(err)
		}
		if later.Token() <= writer.Token() {
			t.Errorf("a reader has the token %d, after a writer with %d", later.Token(), writer.Token())
		}
	})
}
