//go:build linux

package torture

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch-torture/internal/torture/history"
	"github.com/redlatch/redlatch/internal/redistest"
)

// The servers of a node with Sentinels, in the order in which faults name them: the
// first master, two replicas, three Sentinels.
const (
	dataServers   = 3
	sentinelCount = 3
	watchedName   = "main"
)

// watched is a node that Sentinels watch. Each of its servers and the workers of
// each side have a host of their own on a lan.
type watched struct {
	lan     *lan
	binary  string
	servers []*redistest.Server // all six
	fronts  []string            // their addresses, as all others know them

	mu   sync.Mutex // guards away; nothing waits while it is held
	away int        // the Sentinel that is killed or hung, 0 for none
}

// startWatched starts all and blocks until the Sentinels know each other and the
// replicas. When it fails, nothing is left.
func startWatched(ctx context.Context, binary string) (w *watched, err error) {
	w = &watched{lan: newLAN(), binary: binary}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	for i := range dataServers + sentinelCount {
		address, open, err := w.lan.front(host(i))
		if err != nil {
			return w, err
		}
		w.fronts = append(w.fronts, address)
		_, port, _ := net.SplitHostPort(address)
		options := redistest.Options{Binary: binary, Args: []string{"--replica-announce-ip", "127.0.0.1", "--replica-announce-port", port}}
		switch {
		case i >= dataServers:
			_, master, _ := net.SplitHostPort(w.fronts[0])
			options.Sentinel, options.Args = true, []string{
				"--sentinel", "monitor", watchedName, "127.0.0.1", master, "2",
				"--sentinel", "down-after-milliseconds", watchedName, "500",
				"--sentinel", "failover-timeout", watchedName, "1500",
				"--sentinel", "announce-ip", "127.0.0.1", "--sentinel", "announce-port", port,
			}
		case i > 0:
			options.ReplicaOf = w.fronts[0]
		}
		s, err := redistest.Start(ctx, options)
		if err != nil {
			return w, err
		}
		w.servers = append(w.servers, s)
		w.lan.settleServer(s.PID, host(i))
		open(s.Addr())
		if i >= dataServers {
			if err := hasten(s); err != nil {
				return w, err
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return w, until(ctx, func() error {
		for i := dataServers; i < len(w.servers); i++ {
			m, err := w.watching(ctx, i)
			if err != nil {
				return err
			}
			if m["num-other-sentinels"] != "2" {
				return fmt.Errorf("%s knows %s others", w.labels()[i], m["num-other-sentinels"])
			}
			if n, err := w.fit(ctx, i); err != nil || n < dataServers-1 {
				return fmt.Errorf("%s finds %d replicas fit, %w", w.labels()[i], n, err)
			}
		}
		return nil
	})
}

// hasten has a Sentinel look around more often than every 10 s.
func hasten(s *redistest.Server) error {
	_, err := s.Do("SENTINEL", "DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "300", "PING-PERIOD", "200")
	if err != nil {
		return fmt.Errorf("a Sentinel with SENTINEL DEBUG, of Redis 7 or Valkey, is needed: %w", err)
	}
	return nil
}

func (w *watched) urls() []string {
	s := w.fronts[dataServers:]
	return []string{fmt.Sprintf("redis://%s?addr=%s&addr=%s&master_set=%s#%s", s[0], s[1], s[2], watchedName, composedName)}
}

func (w *watched) labels() []string {
	return []string{"server 1", "server 2", "server 3", "Sentinel 1", "Sentinel 2", "Sentinel 3"}
}

func (w *watched) kind() string {
	s := w.servers[0]
	return fmt.Sprintf("%s %s, a master with two replicas and three Sentinels", filepath.Base(w.binary), s.Version())
}

func (w *watched) settle(pid int, s side) { w.lan.settle(pid, workersOf(s)) }

func (w *watched) close() error {
	var errs []error
	for _, s := range w.servers {
		errs = append(errs, s.Close())
	}
	w.lan.close()
	return errors.Join(errs...)
}

// sentinels are those that can be asked.
func (w *watched) sentinels() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	var there []int
	for i := dataServers; i < len(w.servers); i++ {
		if i != w.away {
			there = append(there, i)
		}
	}
	return there
}

func (w *watched) send(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = i
}

// asked is how long a server is waited for.
const asked = time.Second

func do(ctx context.Context, s *redistest.Server, command ...string) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, asked)
	defer cancel()
	conn, err := s.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	return conn.Do(command...)
}

// watching asks a Sentinel what it knows of the master.
func (w *watched) watching(ctx context.Context, i int) (map[string]string, error) {
	reply, err := do(ctx, w.servers[i], "SENTINEL", "MASTER", watchedName)
	return pairs(reply), err
}

func pairs(reply any) map[string]string {
	list, _ := reply.([]any)
	m := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		m[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return m
}

// fit counts the replicas that a Sentinel could promote.
func (w *watched) fit(ctx context.Context, i int) (n int, err error) {
	reply, err := do(ctx, w.servers[i], "SENTINEL", "REPLICAS", watchedName)
	list, _ := reply.([]any)
	for _, replica := range list {
		if r := pairs(replica); r["flags"] == "slave" && r["master-link-status"] == "ok" {
			n++
		}
	}
	return n, err
}

var errNoMaster = errors.New("no two Sentinels name one master")

// master is the server that a majority of the Sentinels name.
func (w *watched) master(ctx context.Context) (int, error) {
	votes := map[string]int{}
	for _, i := range w.sentinels() {
		m, err := w.watching(ctx, i)
		if err != nil {
			continue
		}
		address := net.JoinHostPort(m["ip"], m["port"])
		if votes[address]++; votes[address] < 2 {
			continue
		}
		for j, front := range w.fronts[:dataServers] {
			if front == address {
				return j, nil
			}
		}
	}
	return 0, errNoMaster
}

func (w *watched) run(ctx context.Context, _ int) string {
	i, err := w.master(ctx)
	if err != nil {
		return ""
	}
	return fmt.Sprint(i, " ", w.servers[i].PID())
}

func (w *watched) look(ctx context.Context, names []string) []history.Look {
	return lookBy(ctx, w.keeper, names)
}

// keeper dials the server that has the keys of a name, and numbers it from 0.
func (w *watched) keeper(ctx context.Context, _ string) (*redistest.Conn, int, error) {
	i, err := w.master(ctx)
	if err != nil {
		return nil, 0, err
	}
	conn, err := w.servers[i].Dial(ctx)
	return conn, i, err
}

// ready blocks until a failover could be done.
func (w *watched) ready(ctx context.Context, it item) error {
	if traits[it.kind].sentinel {
		return nil
	}
	return until(ctx, func() error {
		i, err := w.master(ctx)
		if err != nil {
			return err
		}
		if reply, err := do(ctx, w.servers[i], "ROLE"); err != nil || !strings.HasPrefix(fmt.Sprint(reply), "[master") {
			return fmt.Errorf("%s is %v, %w", w.labels()[i], reply, err)
		}
		for _, i := range w.sentinels() {
			m, err := w.watching(ctx, i)
			if err != nil || m["flags"] != "master" {
				return fmt.Errorf("%s says of the master %q, %w", w.labels()[i], m["flags"], err)
			}
			if n, err := w.fit(ctx, i); err != nil || n == 0 {
				return fmt.Errorf("%s finds no replica fit, %w", w.labels()[i], err)
			}
		}
		return nil
	})
}

func (w *watched) begin(ctx context.Context, it item) (hit []int, undo func() error, err error) {
	always := context.WithoutCancel(ctx)
	if traits[it.kind].sentinel {
		i := dataServers + it.whom
		w.send(i)
		if it.kind == hangSentinel {
			return []int{i}, func() error { defer w.send(0); return w.servers[i].Resume() }, w.servers[i].Pause()
		}
		w.servers[i].Kill()
		return []int{i}, func() error {
			if err := w.servers[i].Restart(always); err != nil {
				return err
			}
			w.send(0)
			return hasten(w.servers[i])
		}, nil
	}
	i, err := w.master(ctx)
	if err != nil {
		return nil, nil, err
	}
	master := w.servers[i]
	hit = []int{i}
	switch it.kind {
	case killNode:
		master.Kill()
		return hit, func() error { return master.Restart(always) }, nil
	case hangNode:
		return hit, master.Resume, master.Pause()
	case failover:
		return hit, nil, w.promote(ctx, i)
	case failback:
		return hit, func() error { return w.promoteAgain(always, i) }, w.promote(ctx, i)
	case settings, flush, scripts:
		undo, err := disturb(ctx, it, master)
		return hit, undo, err
	case lag:
		var replication []way
		for j := range dataServers {
			if j != i {
				replication = append(replication, way{host(i), host(j)})
			}
		}
		w.lan.hold(replication, true)
		release := func() error { w.lan.hold(replication, false); return nil }
		wait(ctx, it.delay) // for locks that the replicas do not hear of
		if it.hard {
			master.Kill()
			return hit, func() error { return errors.Join(master.Restart(always), release()) }, nil
		}
		return hit, release, w.promote(ctx, i)
	case minority:
		sentinel := dataServers + it.whom
		hit = append(hit, sentinel)
		ways := between(host(i), host(sentinel), workersOf(it.side))
		w.lan.hold(ways, true)
		return hit, func() error { w.lan.hold(ways, false); return nil }, nil
	}
	panic("torture: no such fault of a node with Sentinels: " + string(it.kind))
}

// orderAgain is after how long a failover is ordered again: the Sentinel that was to
// see to it may have been stopped meanwhile.
const orderAgain = 3 * time.Second

// promote has a Sentinel replace the master, and blocks until a majority names
// another.
func (w *watched) promote(ctx context.Context, old int) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	var ordered time.Time
	return until(ctx, func() error {
		if i, err := w.master(ctx); err == nil && i != old {
			return nil
		}
		if time.Since(ordered) < orderAgain {
			return errors.New("the failover that was ordered has not happened")
		}
		var err error
		for _, i := range w.sentinels() {
			if _, err = do(ctx, w.servers[i], "SENTINEL", "FAILOVER", watchedName); err == nil {
				ordered = time.Now()
				return errors.New("the failover has just been ordered")
			}
		}
		return err
	})
}

// promoteAgain has a Sentinel replace the present master by a former one: the other replica may
// not be promoted meanwhile.
func (w *watched) promoteAgain(ctx context.Context, former int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*readyLimit)
	defer cancel()
	for {
		present := former
		err := until(ctx, func() (err error) { present, err = w.master(ctx); return err })
		if err != nil || present == former {
			return err
		}
		other := (0 + 1 + 2) - present - former
		if err := w.prefer(ctx, other, 0); err != nil {
			return err
		}
		err = w.promote(ctx, present)
		if err := errors.Join(err, w.prefer(context.WithoutCancel(ctx), other, 100)); err != nil {
			return err
		}
	}
}

// prefer sets the priority of a replica, 0 for one that is not to be promoted, and blocks until
// the Sentinels know.
func (w *watched) prefer(ctx context.Context, server, priority int) error {
	if err := doing(w.servers[server], "CONFIG", "SET", "replica-priority", fmt.Sprint(priority))(); err != nil {
		return err
	}
	if priority > 0 {
		return nil // the Sentinels will see it in time
	}
	return until(ctx, func() error {
		for _, i := range w.sentinels() {
			reply, err := do(ctx, w.servers[i], "SENTINEL", "REPLICAS", watchedName)
			if err != nil {
				return err
			}
			list, _ := reply.([]any)
			for _, replica := range list {
				r := pairs(replica)
				if net.JoinHostPort(r["ip"], r["port"]) == w.fronts[server] && r["slave-priority"] != "0" {
					return fmt.Errorf("%s knows of priority %s", w.labels()[i], r["slave-priority"])
				}
			}
		}
		return nil
	})
}
