// Package ensemble has what the modules share that keep locks in an ensemble of servers which answers
// as one: which settings have a meaning there, and the steps that are the same in each.
package ensemble

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/printable"
)

// StepTime is how long one step may take.
const StepTime = time.Second

const defaultMaxTTL = 10 * time.Second

// Settings refuses the settings that have no meaning for an ensemble, and fills in its defaults.
// whole is what the engine calls the ensemble; servers says where these are named, and apart which
// setting keeps clients apart.
func Settings(c redlatch.Config, whole, servers, apart string) (redlatch.Config, error) {
	for _, s := range []struct {
		set       bool
		name, why string
	}{
		{len(c.Nodes) > 0, "Nodes", servers},
		{c.NodeTimeout != 0, "NodeTimeout", "the " + whole + " answers as one, and has a second for each step"},
		{c.Replicas != (redlatch.Replicas{}), "Replicas", "a majority of the " + whole + " always has each lock"},
		{c.Deployment != "", "Deployment", "clients are kept apart by " + apart},
		{c.NoQuarantine, "NoQuarantine", "a server that restarts has forgotten no lock, so that there is no quarantine"},
		{c.Durable, "Durable", "servers always have a lock on disk before it is granted"},
		{c.Strict, "Strict", "servers evict nothing"},
	} {
		if s.set {
			return c, fmt.Errorf("redlatch.Config.%s has no meaning here: %s: leave it out", s.name, s.why)
		}
	}
	if c.MaxTTL == 0 {
		c.MaxTTL = c.TTL
	}
	if c.MaxTTL == 0 {
		c.MaxTTL = defaultMaxTTL
	}
	c.NodeTimeout = StepTime
	return c, nil
}

// ErrNilContext refuses a ctx that is nil.
var ErrNilContext = errors.New("ctx is nil: pass context.Background() or the request's context")

// Address is host:port of a server, which may lack the port. instead says what is given elsewhere.
func Address(server, defaultPort, instead string) (string, error) {
	if strings.ContainsAny(server, "/@?,# \t") || !printable.Is(server) || server == "" {
		return "", errors.New("it is not host:port: " + instead)
	}
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		host, port = strings.Trim(server, "[]"), defaultPort
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return "", errors.New("it is not host:port")
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return "", errors.New("it is not host:port")
	}
	return net.JoinHostPort(host, port), nil
}
