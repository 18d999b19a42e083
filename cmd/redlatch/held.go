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

// The variables that redlatch run sets for COMMAND.
const (
	// envName has the name of the innermost lock, or its first name if it has several.
	envName = "REDLATCH_NAME"
	// envNames has all names of that lock, one per line.
	envNames = "REDLATCH_NAMES"
	// envSlot has the slot of the permit, if it is a permit and not a lock.
	envSlot = "REDLATCH_SLOT"
	// envToken has its fencing token, in decimal.
	envToken = "REDLATCH_TOKEN"
	// envDeadline has the time until which it was certain to be held when COMMAND
	// started: RFC 3339, UTC, nine digits of a second. A renewal moves the deadline
	// on, but COMMAND does not learn of it.
	envDeadline = "REDLATCH_DEADLINE"
	// envHeld lists the locks of every redlatch run around COMMAND.
	envHeld = "REDLATCH_HELD"
)

// permitPlace ends the place of a permit. A permit conflicts with other permits of its name, but
// not with the lock of that name.
const permitPlace = "#"

// deadlineFormat is RFC 3339 with all nine digits, so that texts sort as times
// do.
const deadlineFormat = "2006-01-02T15:04:05.000000000Z07:00"

// held is one name of a lock that an enclosing redlatch run holds.
type held struct {
	// name is for people to read.
	name string
	// place stands for the key and the nodes. Two locks with the same place are one.
	place string
	// pid and birth stand for the process that holds the lock. A process that
	// COMMAND left running still has the entry after COMMAND has ended. Nobody
	// holds the lock for that process any more, so it may wait for the lock like
	// everybody else.
	pid   int
	birth string
}

// ourHold returns the entry for a name that this process is about to lock.
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

// String returns the entry in the form that it has in the environment.
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

// refuseNested returns an error if an enclosing redlatch run holds ours: the
// enclosing run waits for this process to end, and this process would wait for the lock.
func refuseNested(ours held) error {
	for entry := range strings.FieldsSeq(os.Getenv(envHeld)) {
		outer, ok := parseHeld(entry)
		if !ok || outer.place != ours.place || !alive(outer) {
			continue
		}
		return usage("COMMAND already runs under the lock: it need not lock again; for another lock, give another NAME",
			"%q is already held by the enclosing redlatch run (process %d): waiting for it would never end", ours.name, outer.pid)
	}
	return nil
}

func alive(h held) bool { return processExists(h.pid) && h.birth == birth(h.pid) }

// environment returns the environment of COMMAND: what this process has inherited,
// with the variables of ours in place of an enclosing redlatch run's. No variable is
// there twice: some programs would take the first value and others the last.
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
