package restart

import (
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
	server := redistest.New(t)
	events := new(locktest.Events)
	c := locktest.WithQuarantine(server.URL())
	c.Observer = events
	client := locktest.Open(t, c)
	events.Client.Store(client)
	locktest.Vouch(t, client, "n0")
	locktest.TryUntilAnswered(t, client, t.Name())
	if kinds := events.Kinds(); strings.Contains(kinds, "Node") {
		t.Errorf("observed %q before it restarts", kinds)
	}

	locktest.KillAndRestart(t, server)
	restarted := time.Now()
	awaitVote(t, client, t.Name()+"/after")
	client.Close()

	in, out := locktest.EventsOf[redlatch.NodeQuarantined](events), locktest.EventsOf[redlatch.NodeAdmitted](events)
	if len(in) == 0 || len(out) != 1 {
		t.Fatalf("observed %q", events.Kinds())
	}
	info, err := server.Info("server")
	if err != nil {
		t.Fatal(err)
	}
	q := in[len(in)-1]
	// The server counts in whole seconds, since it started.
	if left := q.Until.Sub(restarted); q.Node != "n0" || q.RunID != info["run_id"] || q.Reason == "" || left <= 0 || left > locktest.RestartQuarantine+2*time.Second {
		t.Errorf("%+v, %v after the restart", q, left)
	}
	if a := out[0]; a.Node != "n0" || a.RunID != q.RunID {
		t.Errorf("%+v", a)
	}
	if kinds := events.Kinds(); strings.Index(kinds, "NodeAdmitted") < strings.Index(kinds, "NodeQuarantined") {
		t.Errorf("observed %q", kinds)
	}
}
