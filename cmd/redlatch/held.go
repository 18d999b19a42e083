//go:build unix

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/redlatch/redlatch"
)

// What COMMAND finds in its environment.
const (
	// envName is the name of the innermost lock, and the first where it has several.
	envName = "REDLATCH_NAME"
	// envNames has all its names, one a line.
	envNames = "REDLATCH_NAMES"
	// envSlot is which permit it is, of one that is a permit.
	envSlot = "REDLATCH_SLOT"
	// envToken is its fencing token, in decimal.
	envToken = "REDLATCH_TOKEN"
	// envDeadline is the time until which it is certainly held, as far as was
	// known when COMMAND started: RFC 3339, UTC, nine digits of a second.
	// Renewal moves the deadline on without COMMAND being told.
	envDeadline = "REDLATCH_DEADLINE"
	// envHeld lists the locks of every redlatch run around COMMAND.
	envHeld = "REDLATCH_HELD"
)

// permitPlace ends the place of a permit: it is in the way of another of its name, and not of the lock.
const permitPlace = "#"

// deadlineFormat is RFC 3339 with all nine digits, so that texts compare as
// times do.
const deadlineFormat = "2006-01-02T15:04:05.000000000Z07:00"

// held is one lock of a redlatch run around this process, by one of its names.
type held struct {
	// name is for people to read.
	name string
	// place stands for the key and the nodes: what makes two locks the same.
	place string
	// pid and birth are the process that holds it. A process that was left
	// running by a COMMAND long gone has the entry still; nobody holds the
	// lock for it any more, so it may wait for it like everybody else.
	pid   int
	birth string
}

// ourHold describes the lock that this process is about to take.
func ourHold(name string, cfg redlatch.Config) held {
	nodes := make([]string, len(cfg.Nodes))
	for i, node := range cfg.Nodes {
		nodes[i] = endpoint(node)
	}
	slices.Sort(nodes)
	key := name
	if cfg.KeyTemplate != "" {
		key = strings.ReplaceAll(cfg.KeyTemplate, "{name}", name)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", key, nodes))
	pid := os.Getpid()
	return held{name: name, place: hex.EncodeToString(sum[:8]), pid: pid, birth: birth(pid)}
}

// String is the form the entry has in the environment.
func (h held) String() string {
	return fmt.Sprintf("%s@%s:%d:%s", url.QueryEscape(h.name), h.place, h.pid, h.birth)
}

func parseHeld(entry string) (held, bool) {
	escaped, rest, _ := strings.Cut(entry, "@")
	fields := strings.Split(rest, ":")
	if len(fields) != 3 {
		return held{}, false
	}
	name, err := url.QueryUnescape(escaped)
	if err != nil {
		return held{}, false
	}
	pid, err := strconv.Atoi(fields[1])
	return held{name: name, place: fields[0], pid: pid, birth: fields[2]}, err == nil && pid > 0
}

// refuseNested reports that ours is held by a redlatch run around this one: it
// would wait for this process, which would wait for it.
func refuseNested(ours held) error {
	for entry := range strings.FieldsSeq(os.Getenv(envHeld)) {
		outer, ok := parseHeld(entry)
		if !ok || outer.place != ours.place || !alive(outer) {
			continue
		}
		return usage("COMMAND runs with the lock held: drop the inner redlatch run, or give it another NAME",
			"%q is held already by the enclosing redlatch run (process %d): waiting for it would never end", ours.name, outer.pid)
	}
	return nil
}

func alive(h held) bool { return processExists(h.pid) && h.birth == birth(h.pid) }

// environment is what COMMAND gets: ours, and what is inherited without an
// outer redlatch run's. The first of two equal names wins in some programs and
// the last in others, so none is there twice.
func environment(inherited []string, lock *redlatch.Lock, ours []held) []string {
	list := ""
	env := slices.DeleteFunc(slices.Clone(inherited), func(entry string) bool {
		name, value, _ := strings.Cut(entry, "=")
		if name == envHeld {
			list = value
		}
		return slices.Contains([]string{envName, envNames, envSlot, envToken, envDeadline, envHeld}, name)
	})
	for _, one := range ours {
		list = strings.TrimPrefix(list+" "+one.String(), " ")
	}
	if slot := lock.Slot(); slot >= 0 {
		env = append(env, envSlot+"="+strconv.Itoa(slot))
	}
	return append(env,
		envName+"="+lock.Name(),
		envNames+"="+strings.Join(lock.Names(), "\n"),
		envToken+"="+strconv.FormatUint(lock.Token(), 10),
		envDeadline+"="+lock.Until().UTC().Format(deadlineFormat),
		envHeld+"="+list,
	)
}
