package zookeeper_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/locktest/enginetest"
	"github.com/redlatch/redlatch/zookeeper"
)

func examine(t *testing.T, c redlatch.Config, e zookeeper.Ensemble) doctor.Ensemble {
	t.Helper()
	report, err := zookeeper.Examine(t.Context(), c, e)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// An ensemble whose servers go down one after the other, and come back.
func TestExamine(t *testing.T) {
	reconnects(t)
	t.Parallel()
	e := own(t)
	ensemble := zookeeper.Ensemble{Servers: e.Addrs(), Root: enginetest.Root(t)}
	well := func() {
		t.Helper()
		enginetest.AwaitWell(t, func() doctor.Ensemble { return examine(t, enginetest.Config, ensemble) })
	}
	well()
	if found, _, err := connect(t, e).Exists(ensemble.Root); found || err != nil {
		t.Errorf("it has made the root: %v", err)
	}

	_, followers := e.Leader()
	followers[0].Kill()
	report := examine(t, enginetest.Config, ensemble)
	if !report.Quorum || !enginetest.Says(report, false, followers[0].Addr(), "cannot be examined") || len(report.Problems) != 1 {
		t.Errorf("one is down: %+v", report)
	}
	followers[1].Kill()
	enginetest.Await(t, "the last has noticed", func() bool {
		report = examine(t, enginetest.Config, ensemble)
		return !report.Quorum && enginetest.Says(report, true, "", "no lock can be acquired")
	})
	e.KillAll()
	report = examine(t, enginetest.Config, ensemble)
	if report.Quorum || len(report.Problems) != 4 {
		t.Errorf("all are down: %+v", report)
	}
	e.StartAll(t)
	e.AwaitServing()
	well()
}

// Settings with which clients get no lock.
func TestExamineFindsWhatClientsMeet(t *testing.T) {
	reconnects(t)
	t.Parallel()
	e := common(t)
	ensemble := zookeeper.Ensemble{Servers: e.Addrs(), Root: enginetest.Root(t)}
	if report := examine(t, redlatch.Config{MaxTTL: 31 * time.Second}, ensemble); !enginetest.Says(report, true, "", "maxSessionTimeout") {
		t.Errorf("sessions are too short: %+v", report)
	}
	conn := connect(t, e)
	if _, err := conn.Create(ensemble.Root, []byte("another's"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if report := examine(t, enginetest.Config, ensemble); !enginetest.Says(report, true, "", "something else's") {
		t.Errorf("another's root: %+v", report)
	}
	ensemble.Root += "-closed"
	if _, err := conn.Create(ensemble.Root, nil, 0, zk.DigestACL(zk.PermAll, "user", "secret")); err != nil {
		t.Fatal(err)
	}
	if report := examine(t, enginetest.Config, ensemble); !enginetest.Says(report, true, "", "not authenticated") {
		t.Errorf("a root that is closed: %+v", report)
	}
	ensemble.Root += "-read"
	client := open(t, enginetest.Config, ensemble)
	if _, err := conn.SetACL(ensemble.Root, zk.WorldACL(zk.PermRead|zk.PermAdmin), -1); err != nil {
		t.Fatal(err)
	}
	enginetest.Await(t, "a client is refused", func() bool {
		_, err := client.TryLock(t.Context(), "x")
		return errors.Is(err, redlatch.ErrRefused)
	})
	if report := examine(t, enginetest.Config, ensemble); !enginetest.Says(report, true, "", "not authenticated") {
		t.Errorf("a root that may only be read: %+v", report)
	}
	if _, err := conn.SetACL(ensemble.Root, zk.WorldACL(zk.PermAll), -1); err != nil {
		t.Fatal(err)
	}
	enginetest.AwaitWell(t, func() doctor.Ensemble { return examine(t, enginetest.Config, ensemble) })
	if children, _, err := conn.Children(ensemble.Root); err != nil || len(children) != 1 {
		t.Errorf("it has made something beside the mark: %q, %v", children, err)
	}
	var none context.Context
	if _, err := zookeeper.Examine(none, redlatch.Config{}, ensemble); !errors.Is(err, redlatch.ErrInvalid) {
		t.Errorf("without a ctx: %v", err)
	}
	if _, err := zookeeper.Examine(t.Context(), redlatch.Config{Durable: true}, ensemble); !errors.Is(err, redlatch.ErrInvalid) {
		t.Errorf("a setting without a meaning: %v", err)
	}
}

// Servers that do not say what they are, or are of a version that will not do.
func TestExamineServers(t *testing.T) {
	t.Parallel()
	const serving = "\nLatency min/avg/max: 0/0/0\nMode: follower\n"
	for name, tt := range map[string]struct {
		reply, want string
		unusable    bool
	}{
		"no such word": {reply: "srvr is not executed because it is not in the whitelist.\n", want: "4lw.commands.whitelist"},
		"no majority":  {reply: "This ZooKeeper instance is not currently serving requests\n", want: "a majority of the ensemble"},
		"too old":      {reply: "Zookeeper version: 3.4.14-4c25d480e66aadd371de8bd2fd8da255ac140bcf, built on 03/06/2019" + serving, want: "3.4.14 has no container nodes", unusable: true},
		"a beta":       {reply: "Zookeeper version: 3.5.4-beta-7f51e5b68cf2f80176ff944a9ebd2abbc65e7327, built on" + serving, want: "3.5.4 is an alpha or a beta", unusable: true},
		"alone":        {reply: "Zookeeper version: 3.9.3-1, built on" + strings.Replace(serving, "follower", "standalone", 1), want: "a single server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, _ := answering(t, tt.reply)
			if report := examine(t, enginetest.Config, zookeeper.Ensemble{Servers: []string{addr}}); !enginetest.Says(report, tt.unusable, addr, tt.want) {
				t.Errorf("%+v", report)
			}
		})
	}
}

// Servers of several ensembles, or alone, that are named as if they were one ensemble.
func TestExamineFindsTwoEnsembles(t *testing.T) {
	t.Parallel()
	server := func(mode string) string {
		addr, _ := answering(t, "Zookeeper version: 3.9.3-1, built on\nMode: "+mode+"\n")
		return addr
	}
	for modes, found := range map[string]bool{
		"leader": false, "leader follower": false, "follower observer": false, "standalone": false,
		"leader leader": true, "standalone standalone": true, "standalone follower": true,
	} {
		t.Run(modes, func(t *testing.T) {
			t.Parallel()
			var servers []string
			for mode := range strings.FieldsSeq(modes) {
				servers = append(servers, server(mode))
			}
			report := examine(t, enginetest.Config, zookeeper.Ensemble{Servers: servers})
			if says := enginetest.Says(report, true, "", "not of one ensemble"); says != found {
				t.Errorf("%+v", report)
			}
		})
	}
}
