package etcd_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/etcd"
	"github.com/redlatch/redlatch/internal/locktest/enginetest"
)

func examine(t *testing.T, c etcd.Cluster) doctor.Ensemble {
	t.Helper()
	report, err := etcd.Examine(t.Context(), enginetest.Config, c)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// A cluster with an alarm, and one whose members go down one after the other, and come back.
func TestExamine(t *testing.T) {
	t.Parallel()
	c := own(t)
	cluster := etcd.Cluster{Endpoints: c.Addrs(), Prefix: enginetest.Root(t)}
	well := func() {
		t.Helper()
		enginetest.AwaitWell(t, func() doctor.Ensemble { return examine(t, cluster) })
	}
	well()
	client := dial(t, c.Addrs()...)
	defer client.Close()
	if r, err := client.Get(t.Context(), cluster.Prefix); err != nil || r.Count != 0 || r.Header.Revision != 1 {
		t.Errorf("it has written: %+v, %v", r, err)
	}

	leader, followers := c.Leader()
	status, err := client.Status(t.Context(), leader.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for alarm, text := range map[etcdserverpb.AlarmType]string{etcdserverpb.AlarmType_NOSPACE: "alarm NOSPACE", etcdserverpb.AlarmType_CORRUPT: "alarm CORRUPT"} {
		set := func(action etcdserverpb.AlarmRequest_AlarmAction) {
			t.Helper()
			r := &etcdserverpb.AlarmRequest{Action: action, MemberID: status.Header.MemberId, Alarm: alarm}
			if _, err := etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		set(etcdserverpb.AlarmRequest_ACTIVATE)
		enginetest.Await(t, text, func() bool { return enginetest.Says(examine(t, cluster), true, leader.Addr(), text) })
		set(etcdserverpb.AlarmRequest_DEACTIVATE)
	}
	well()

	followers[0].Kill()
	report := examine(t, cluster)
	if !report.Quorum || !enginetest.Says(report, false, followers[0].Addr(), "cannot be examined") || len(report.Problems) != 1 {
		t.Errorf("one is down: %+v", report)
	}
	followers[1].Kill()
	if report = examine(t, cluster); report.Quorum || !enginetest.Says(report, true, "", "no lock can be acquired") {
		t.Errorf("two are down: %+v", report)
	}
	c.KillAll()
	if report = examine(t, cluster); report.Quorum || len(report.Problems) != 4 {
		t.Errorf("all are down: %+v", report)
	}
	c.StartAll(t)
	c.AwaitServing()
	well()
}

// Settings with which clients get no lock, and a member that is named twice.
func TestExamineFindsWhatClientsMeet(t *testing.T) {
	t.Parallel()
	c := common(t)
	cluster := etcd.Cluster{Endpoints: c.Addrs(), Prefix: enginetest.Root(t)}
	client := dial(t, c.Addrs()...)
	defer client.Close()
	if _, err := client.Put(t.Context(), cluster.Prefix, "another's"); err != nil {
		t.Fatal(err)
	}
	if report := examine(t, cluster); !enginetest.Says(report, true, "", "something else's") {
		t.Errorf("another's prefix: %+v", report)
	}
	one := c.Addrs()[0]
	twice := etcd.Cluster{Endpoints: []string{one, strings.Replace(one, "127.0.0.1", "localhost", 1)}, Prefix: enginetest.Root(t)}
	if report := examine(t, twice); !enginetest.Says(report, false, twice.Endpoints[1], "the same member as "+one) {
		t.Errorf("one member twice: %+v", report)
	}
	other := own(t).Addrs()[0]
	two := etcd.Cluster{Endpoints: []string{one, other, c.Addrs()[1]}, Prefix: enginetest.Root(t)}
	if report := examine(t, two); !enginetest.Says(report, true, other, "another cluster than "+one) {
		t.Errorf("members of two clusters: %+v", report)
	}
	var none context.Context
	if _, err := etcd.Examine(none, redlatch.Config{}, cluster); !errors.Is(err, redlatch.ErrInvalid) {
		t.Errorf("without a ctx: %v", err)
	}
	if _, err := etcd.Examine(t.Context(), redlatch.Config{Durable: true}, cluster); !errors.Is(err, redlatch.ErrInvalid) {
		t.Errorf("a setting without a meaning: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if report, err := etcd.Examine(ctx, enginetest.Config, cluster); err != nil || report.Quorum {
		t.Errorf("without time: %+v, %v", report, err)
	}
}

// A member that does not say whether it accepts the user is waited for until ctx ends.
func TestExamineWithUserEndsWithItsContext(t *testing.T) {
	t.Parallel()
	hung, err := net.Listen("tcp", "127.0.0.1:0") // which accepts nobody
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cluster := etcd.Cluster{Endpoints: []string{hung.Addr().String()}, User: "user", Password: "password"}
	if _, err := etcd.Examine(ctx, enginetest.Config, cluster); !errors.Is(err, redlatch.ErrNoQuorum) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
