package restart

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// A node that restarts is observed in quarantine, and out of it when it votes.
func TestObserverOfQuarantine(t *testing.T) {
	t.Parallel()
	const tries = 20 // a busy machine's client may come only when the quarantine is over, but not each time
	for try := 1; ; try++ {
		kinds, ok := observesQuarantine(t)
		if ok {
			return
		}
		if try == tries {
			t.Fatalf("observed %q", kinds)
		}
	}
}

// observesQuarantine returns what was observed of a restart, and whether it was a quarantine and its end.
func observesQuarantine(t *testing.T) (kinds string, ok bool) {
	server := redistest.New(t)
	events := new(locktest.Events)
	c := locktest.WithQuarantine(server.URL())
	c.Observer = events
	client := locktest.Open(t, c)
	events.Client.Store(client)
	locktest.Vouch(t, client, "n0")
	locktest.TryUntilAnswered(t, client, t.Name())
	for _, kind := range []string{"NodeQuarantined", "NodeAdmitted"} {
		if kinds := events.Kinds(); strings.Contains(kinds, kind) {
			t.Errorf("observed %q before it restarts", kinds)
		}
	}

	before := time.Now()
	locktest.KillAndRestart(t, server)
	restarted := time.Now()
	awaitVote(t, client, t.Name()+"/after")
	client.Close()

	in, out := locktest.EventsOf[redlatch.NodeQuarantined](events), locktest.EventsOf[redlatch.NodeAdmitted](events)
	if len(in) == 0 || len(out) != 1 {
		return events.Kinds(), false
	}
	info, err := server.Info("server")
	if err != nil {
		t.Fatal(err)
	}
	q := in[len(in)-1]
	// The server counts in whole seconds, since it started.
	if q.Node != "n0" || q.RunID != info["run_id"] || q.Reason == "" || !q.Until.After(before) || q.Until.Sub(restarted) > locktest.RestartQuarantine+2*time.Second {
		t.Errorf("%+v, after a restart between %v and %v", q, before, restarted)
	}
	if a := out[0]; a.Node != "n0" || a.RunID != q.RunID {
		t.Errorf("%+v", a)
	}
	if kinds := events.Kinds(); strings.Index(kinds, "NodeAdmitted") < strings.Index(kinds, "NodeQuarantined") {
		t.Errorf("observed %q", kinds)
	}
	return "", true
}

// A server that restarts again in its quarantine, and is vouched for, votes: the quarantine of the run before has ended with
// that run.
func TestQuarantineOfARunThatIsGone(t *testing.T) {
	t.Parallel()
	for name, met := range map[string]bool{"the second is met": true, "the second is not met": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t)
			events := new(locktest.Events)
			c := locktest.WithMaxTTL(locktest.WithQuarantine(server.URL()), locktest.TTL) // nobody waits for its end
			c.Observer = events
			client := locktest.Open(t, c)
			locktest.Vouch(t, client, "n0")
			locktest.TryUntilAnswered(t, client, t.Name())
			locktest.KillAndRestart(t, server)
			if err := locktest.TryUntilAnswered(t, client, t.Name()); !errors.Is(err, redlatch.ErrNotAdmitted) {
				t.Fatal(err)
			}
			locktest.KillAndRestart(t, server)
			if met {
				if err := locktest.TryUntilAnswered(t, client, t.Name()); !errors.Is(err, redlatch.ErrNotAdmitted) {
					t.Fatal(err)
				}
			}
			locktest.Vouch(t, client, "n0")
			if err := locktest.TryUntilAnswered(t, client, t.Name()); err != nil {
				t.Fatal(err)
			}
			if s := client.Stats(); s.Quarantined != 0 {
				t.Errorf("it votes, and %+v", s)
			}
			in, out := locktest.EventsOf[redlatch.NodeQuarantined](events), locktest.EventsOf[redlatch.NodeAdmitted](events)
			admitted := make(map[string]int)
			for _, a := range out {
				admitted[a.RunID]++
			}
			for _, q := range in {
				if admitted[q.RunID] != 1 {
					t.Errorf("the quarantine of %s ended %d times", q.RunID, admitted[q.RunID])
				}
			}
			client.Close()
		})
	}
}
