package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// shared are the servers of all benchmarks. They are started once: those that
// vote only after a while would have to be waited for again.
var shared struct {
	sync.Mutex // guards servers
	servers    []*redistest.Server
}

func TestMain(m *testing.M) {
	flag.Parse()
	end, err := recording()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	code := m.Run()
	for _, s := range shared.servers {
		s.Close()
	}
	if code == 0 { // else the run has no end, and nothing is made of it
		err = end()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 2
	}
	os.Exit(code)
}

// servers returns the first n of the shared servers.
func servers(b testing.TB, n int) []*redistest.Server {
	b.Helper()
	shared.Lock()
	defer shared.Unlock()
	for len(shared.servers) < n {
		s, err := redistest.Start(context.Background(), redistest.Options{})
		if err != nil {
			b.Fatal(err)
		}
		shared.servers = append(shared.servers, s)
	}
	return shared.servers[:n]
}

func addresses(servers []*redistest.Server) []string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr()
	}
	return addrs
}

// work is what servers have done since they were started.
type work struct {
	commands int
	calls    map[string]int // of each command
	cpu      time.Duration
}

var calls = regexp.MustCompile(`^calls=(\d+)`)

// workOf adds up what the servers say of themselves, without being asked.
func workOf(servers []*redistest.Server) (work, error) {
	w := work{calls: make(map[string]int)}
	for _, s := range servers {
		info, err := s.Info("commandstats")
		if err != nil {
			return w, err
		}
		for field, value := range info {
			m := calls.FindStringSubmatch(value)
			if !strings.HasPrefix(field, "cmdstat_") || m == nil || field == "cmdstat_info" {
				continue
			}
			n, err := strconv.Atoi(m[1])
			if err != nil {
				return w, fmt.Errorf("%s=%s: %w", field, value, err)
			}
			w.commands += n
			w.calls[strings.TrimPrefix(field, "cmdstat_")] += n
		}
		info, err = s.Info("cpu")
		if err != nil {
			return w, err
		}
		for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
			seconds, err := strconv.ParseFloat(info[field], 64)
			if err != nil {
				return w, fmt.Errorf("%s: %w", field, err)
			}
			w.cpu += time.Duration(seconds * float64(time.Second))
		}
	}
	return w, nil
}

// playOn is play with the work of the servers.
func playOn(servers []*redistest.Server, l locker, callers int, d time.Duration) (*sample, error) {
	before, err := workOf(servers)
	if err != nil {
		return nil, err
	}
	s := play(l, callers, d)
	after, err := workOf(servers)
	if err != nil {
		return nil, err
	}
	s.commands, s.serverCPU = after.commands-before.commands, after.cpu-before.cpu
	return s, nil
}
