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

// The servers of a node with Sentinels are, by their index, the first master and two replicas (dataServers),
// then three Sentinels.
const (
	dataServers   = 3
	sentinelCount = 3
	watchedName   = "main" // of the master set
)

// watched is a node that Sentinels watch. Each of its servers has a host of its own on a lan, and so have
// the workers of each side together.
type watched struct {
	lan     *lan
	binary  string
	servers []*redistest.Server // all six
	fronts  []string            // the addresses at which all others reach the servers

	mu   sync.Mutex // guards away; nothing waits while it is held
	away int        // index of the Sentinel that is killed or hung, or 0
}

// startWatched starts the lan and the servers, and blocks until the Sentinels know each other and the
// replicas. If it fails, it leaves nothing behind.
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
				return fmt.Errorf("%s knows %s other Sentinels", w.labels()[i], m["num-other-sentinels"])
			}
			n, err := w.fit(ctx, i)
			if err != nil {
				return fmt.Errorf("%s: %w", w.labels()[i], err)
			}
			if n < dataServers-1 {
				return fmt.Errorf("%s could promote %d replicas", w.labels()[i], n)
			}
		}
		return nil
	})
}

// hasten has a Sentinel ask the servers and inform the other Sentinels at least twice a second, instead of
// every 1 to 10 s.
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

// sentinels returns the indexes of the Sentinels that are up.
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

// setAway notes which Sentinel is down or hangs, or with 0 that none does.
func (w *watched) setAway(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = i
}

// asked is how long the answer of a server may take.
const asked = time.Second

// do sends a command to a server on a new connection, and returns the reply.
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

// watching asks the Sentinel with index i what it knows of the master.
func (w *watched) watching(ctx context.Context, i int) (map[string]string, error) {
	reply, err := do(ctx, w.servers[i], "SENTINEL", "MASTER", watchedName)
	return pairs(reply), err
}

// pairs returns a reply of names and values in turn as a map.
func pairs(reply any) map[string]string {
	list, _ := reply.([]any)
	m := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		m[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return m
}

// fit returns how many replicas the Sentinel with index i could promote.
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

// master returns the index of the server that two Sentinels, which are a majority, name as the master.
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

// keeper dials the master, which has the keys of all names, and returns its index.
func (w *watched) keeper(ctx context.Context, _ string) (*redistest.Conn, int, error) {
	i, err := w.master(ctx)
	if err != nil {
		return nil, 0, err
	}
	conn, err := w.servers[i].Dial(ctx)
	return conn, i, err
}

// ready blocks until a failover could be done, or ctx is done. Faults of Sentinels need not wait.
func (w *watched) ready(ctx context.Context, it item) error {
	if traits[it.kind].sentinel {
		return nil
	}
	return until(ctx, func() error {
		i, err := w.master(ctx)
		if err != nil {
			return err
		}
		reply, err := do(ctx, w.servers[i], "ROLE")
		if err != nil {
			return fmt.Errorf("%s: %w", w.labels()[i], err)
		}
		if !strings.HasPrefix(fmt.Sprint(reply), "[master") {
			return fmt.Errorf("%s is not a master: %v", w.labels()[i], reply)
		}
		for _, i := range w.sentinels() {
			m, err := w.watching(ctx, i)
			if err != nil {
				return fmt.Errorf("%s: %w", w.labels()[i], err)
			}
			if m["flags"] != "master" {
				return fmt.Errorf("%s says of the master %q", w.labels()[i], m["flags"])
			}
			n, err := w.fit(ctx, i)
			if err != nil {
				return fmt.Errorf("%s: %w", w.labels()[i], err)
			}
			if n == 0 {
				return fmt.Errorf("%s could promote no replica", w.labels()[i])
			}
		}
		return nil
	})
}

func (w *watched) begin(ctx context.Context, it item) (hit []int, undo func() error, err error) {
	always := context.WithoutCancel(ctx)
	if traits[it.kind].sentinel {
		i := dataServers + it.whom
		w.setAway(i)
		if it.kind == hangSentinel {
			return []int{i}, func() error { defer w.setAway(0); return w.servers[i].Resume() }, w.servers[i].Pause()
		}
		w.servers[i].Kill()
		return []int{i}, func() error {
			if err := w.servers[i].Restart(always); err != nil {
				return err
			}
			w.setAway(0)
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
		wait(ctx, it.delay) // so that there are locks that the replicas do not know
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

// orderAgain is after how long promote orders a failover again. The Sentinel that was to
// carry it out may have been killed or stopped.
const orderAgain = 3 * time.Second

// promote has a Sentinel replace the master, whose index is old, and blocks until a majority of the
// Sentinels names another one.
func (w *watched) promote(ctx context.Context, old int) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	var ordered time.Time
	return until(ctx, func() error {
		if i, err := w.master(ctx); err == nil && i != old {
			return nil
		}
		if time.Since(ordered) < orderAgain {
			return errors.New("the failover that was ordered has not happened yet")
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

// promoteAgain has a Sentinel replace the present master by a former one. The other replica gets a priority
// for that time with which Sentinels do not promote it.
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

// prefer sets the priority of a replica. With priority 0 Sentinels do not promote it, and prefer blocks until
// they all know of that.
func (w *watched) prefer(ctx context.Context, server, priority int) error {
	if err := doing(w.servers[server], "CONFIG", "SET", "replica-priority", fmt.Sprint(priority))(); err != nil {
		return err
	}
	if priority > 0 {
		return nil // it does not matter when the Sentinels learn of it
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
