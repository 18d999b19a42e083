package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/ensemble"
	"github.com/redlatch/redlatch/internal/vote"
)

// examineTime bounds the look at an ensemble.
const examineTime = 5 * time.Second

// Examine looks at an ensemble and says what is wrong with it, for operators and health checks.
// Give it what clients are opened with. It changes nothing, except that it has a session meanwhile.
// It asks each server for its version and role by the word srvr, which servers permit by default.
//
// It waits for all servers, for five seconds at most, or for ctx. What could not be found out by
// then is missing from the report, which says why. The error wraps redlatch.ErrInvalid when a
// setting cannot work or ctx is nil; then nothing was sent.
func Examine(ctx context.Context, config redlatch.Config, e Ensemble) (doctor.Ensemble, error) {
	if ctx == nil {
		return doctor.Ensemble{}, invalid(ensemble.ErrNilContext)
	}
	config, err := settings(config)
	if err == nil {
		e, err = e.complete(config)
	}
	if err != nil {
		return doctor.Ensemble{}, invalid(err)
	}
	ctx, cancel := context.WithTimeout(ctx, examineTime)
	defer cancel()
	x := &examination{Ensemble: e, dial: e.dialer(config.TLS), report: doctor.Ensemble{Members: make([]doctor.Member, len(e.Servers))}}
	var all sync.WaitGroup
	for i, address := range e.Servers {
		all.Go(func() { x.report.Members[i] = x.ask(ctx, address) })
	}
	all.Go(func() { x.why, x.said = x.enter(ctx, config) })
	all.Wait()
	x.judge()
	return x.report, nil
}

func settings(config redlatch.Config) (redlatch.Config, error) {
	return ensemble.Settings(config, "ensemble", "the servers are named in Ensemble.Servers", "Ensemble.Root")
}

type examination struct {
	Ensemble
	dial   func(ctx context.Context, address string) (net.Conn, error)
	report doctor.Ensemble
	// why says why no session can be used, if that is so. said: servers have said so.
	why  error
	said bool
}

var (
	// errNotServing is what a server answers that has no majority with it.
	errNotServing = errors.New("it serves no client: it does not reach a majority of the ensemble")
	// errNotPermitted stands for the answer of a server that does not permit the word srvr.
	errNotPermitted = errors.New("it does not answer srvr")

	versionLine = regexp.MustCompile(`(?m)^Zookeeper version: ([0-9]+\.[0-9]+\.[0-9]+[^ ,]*)`)
	modeLine    = regexp.MustCompile(`(?m)^Mode: (\w+)`)
)

// ask asks one server what it is.
func (x *examination) ask(ctx context.Context, address string) doctor.Member {
	m := doctor.Member{Address: address}
	conn, err := x.dial(ctx, address)
	if err != nil {
		m.Err = err
		return m
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })()
	var reply []byte
	if _, err = io.WriteString(conn, "srvr"); err == nil {
		reply, err = io.ReadAll(io.LimitReader(conn, 1<<16))
	}
	version, mode := versionLine.FindSubmatch(reply), modeLine.FindSubmatch(reply)
	switch {
	case version != nil && mode != nil:
		m.Version, _, _ = strings.Cut(string(version[1]), "-")
		m.Role = string(mode[1])
	case strings.Contains(string(reply), "not currently serving"):
		m.Err = errNotServing
	case err != nil:
		m.Err = err
	default:
		m.Err = errNotPermitted
	}
	return m
}

// enter makes a session as clients do, which a majority must answer, and looks at the root. It
// returns why that is not possible, and whether servers have said so.
func (x *examination) enter(ctx context.Context, config redlatch.Config) (why error, said bool) {
	var s *session
	s = newSession(2*config.MaxTTL, x.Ensemble, config.TLS, debugLog{slog.New(slog.DiscardHandler)}, func(string) {}, func() error {
		if x.User != "" {
			if err := s.conn.AddAuth("digest", []byte(x.User+":"+x.Password)); err != nil {
				return err
			}
		}
		if _, err := s.conn.Sync("/"); err != nil {
			return err
		}
		data, _, err := s.conn.Get(x.Root)
		if err == nil {
			if _, err = baseOf(x.Root, data); err != nil {
				s.spoil(err)
				return err
			}
		} else if !errors.Is(err, zk.ErrNoNode) { // the first client makes it
			return fmt.Errorf("read %s: %w", x.Root, err)
		}
		// The second request always fails, so nothing is made; the first fails before it where the user may not.
		_, err = s.conn.Multi(&zk.CreateRequest{Path: string(placeOf(x.Root, "")), Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeral},
			&zk.CheckVersionRequest{Path: x.Root, Version: math.MaxInt32})
		switch a := answer(err); {
		case errors.Is(err, zk.ErrNoAuth):
			return fmt.Errorf("create under %s: %w", x.Root, err)
		case errors.Is(err, zk.ErrSessionExpired), a.Verdict == vote.Refused:
			s.spoil(a.Err) // the session was made just now
			return a.Err
		}
		return nil
	})
	s.start()
	defer s.close(false)
	why = s.await(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	return why, s.unfit != nil || answer(why).Verdict == vote.Refused
}

// judge says what is wrong.
func (x *examination) judge() {
	r := &x.report
	add := func(unusable bool, member, text, remedy string) {
		r.Problems = append(r.Problems, doctor.Problem{Unusable: unusable, Member: member, Text: text, Remedy: remedy})
	}
	switch r.Quorum = x.why == nil || x.said; {
	case x.said:
		add(true, "", x.why.Error(), "correct the configuration of the servers, or the settings with which clients are opened")
	case x.why != nil:
		add(true, "", "no server gives a session that a majority answers: no lock can be acquired: "+x.why.Error(), "bring back servers until a majority of the ensemble runs")
	}
	if x.ensembles() > 1 {
		add(true, "", "the servers are not of one ensemble, since each has one leader, and a standalone server is one by itself: two may hold one lock",
			"name the servers of one ensemble, each once; where a leader was just replaced, look again")
	}
	for _, m := range r.Members {
		switch {
		case errors.Is(m.Err, errNotPermitted):
			add(false, m.Address, m.Err.Error()+": its version and role are not known", "add srvr to 4lw.commands.whitelist in its configuration")
		case m.Err != nil:
			add(false, m.Address, "it cannot be examined: "+m.Err.Error(), "check that it runs, that this machine can connect to it, and that it reaches the others")
		default:
			if defect, remedy := defectOf(m.Version); defect != "" {
				add(true, m.Address, "version "+m.Version+" "+defect, remedy)
			}
			if m.Role == "standalone" {
				add(false, m.Address, "it is a single server: while it is down no lock can be acquired, and with its disk all locks are lost", "run three or five servers, so that a majority goes on")
			}
		}
	}
}

// ensembles returns of how many ensembles the servers are at least, by their roles.
func (x *examination) ensembles() int {
	alone, leaders, others := 0, 0, 0
	for _, m := range x.report.Members {
		switch m.Role {
		case "":
		case "standalone":
			alone++
		case "leader":
			leaders++
		default:
			others++
		}
	}
	return alone + max(leaders, min(others, 1))
}

// defectOf says what is wrong with a version for locks, if anything is known.
func defectOf(version string) (defect, remedy string) {
	var major, minor, patch int
	fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch)
	switch {
	case major == 3 && minor < 5:
		return "has no container nodes, which locks need", "use 3.5.5 or later"
	case major == 3 && minor == 5 && patch < 5:
		return "is an alpha or a beta release", "use 3.5.5 or later"
	}
	return "", ""
}
