package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/printable"
	"github.com/redlatch/redlatch/internal/script"
)

// ForeignKey is a key of a lock with a value that no client can have written.
type ForeignKey struct {
	Key string
	// Problem says what is wrong with it.
	Problem string
	// Blocks: the lock cannot be acquired until the key is gone. Where it is false, the next client
	// that needs the key mends it.
	Blocks bool
}

// lookAtForeignKeys reads the keys of the locks with lockKeys. It leaves out what this user may not
// read: lookAtPermissions reports that.
func (n *Node) lookAtForeignKeys(ctx context.Context, x *Examination, lockKeys []string) error {
	for _, key := range lockKeys {
		side := SideKeys(key)
		for _, look := range []func() (*ForeignKey, error){
			func() (*ForeignKey, error) { return n.foreignString(ctx, key, true, noForeign) },
			func() (*ForeignKey, error) { return n.foreignString(ctx, side[0], true, foreignCounter) },
			func() (*ForeignKey, error) { return n.foreignString(ctx, side[1], false, x.foreignWakeUp) },
			func() (*ForeignKey, error) { return n.foreignSet(ctx, side[2], math.MaxInt64) },
			func() (*ForeignKey, error) { return n.foreignSet(ctx, side[3], x.latest(script.Patience)) },
			func() (*ForeignKey, error) { return n.foreignSet(ctx, side[4], math.MaxInt64) },
		} {
			foreign, err := look()
			if err != nil {
				return err
			}
			if foreign != nil {
				x.Foreign = append(x.Foreign, *foreign)
			}
		}
	}
	return nil
}

// foreignString looks at a key that should be a string. problem says what is wrong with its text.
func (n *Node) foreignString(ctx context.Context, key string, blocks bool, problem func(string) string) (*ForeignKey, error) {
	do := func(command ...string) (driver.Reply, error) { return n.conn.Do(ctx, command...) }
	values, err := beginnings([]string{key}, do)
	if err == nil && values[0].Kind == driver.Null { // nothing, or of another type
		values[0], err = do("GET", key)
	}
	switch {
	case isWrongType(err):
		return &ForeignKey{key, n.typeText(ctx, key, "a string"), blocks}, nil
	case err != nil && !isReply(err):
		return nil, err
	case err != nil || values[0].Kind == driver.Null:
		return nil, nil
	}
	if text := problem(values[0].Text); text != "" {
		return &ForeignKey{key, text, blocks}, nil
	}
	return nil, nil
}

// foreignSet looks at a key that should be a sorted set with no score above most.
func (n *Node) foreignSet(ctx context.Context, key string, most int64) (*ForeignKey, error) {
	reply, err := n.conn.Do(ctx, "ZRANGE", key, "-1", "-1", "WITHSCORES")
	switch {
	case isWrongType(err):
		return &ForeignKey{key, n.typeText(ctx, key, "a sorted set"), false}, nil
	case err != nil && !isReply(err):
		return nil, err
	}
	score := lastScore(reply)
	if score <= float64(most) {
		return nil, nil
	}
	return &ForeignKey{key, fmt.Sprintf("it has the deadline %.0f, in ms since 1970, which is later than a client writes", score), false}, nil
}

// lastScore reads a member's score from a reply, 0 where there is none. RESP3 puts the pair into an
// array of its own.
func lastScore(reply driver.Reply) float64 {
	pair := reply.Array
	if len(pair) == 1 {
		pair = pair[0].Array
	}
	if len(pair) != 2 {
		return 0
	}
	score, _ := strconv.ParseFloat(pair[1].Text, 64)
	return score
}

// typeText says of which type the key is, if the user may ask that.
func (n *Node) typeText(ctx context.Context, key, want string) string {
	if reply, err := n.conn.Do(ctx, "TYPE", key); err == nil {
		return fmt.Sprintf("it is a %s, not %s", printable.Text(reply.Text), want)
	}
	return "it is not " + want
}

// noForeign is the problem function of a lock's own key, which may be another library's.
func noForeign(string) string { return "" }

// maxDigits is how many digits script.MaxCounter has.
const maxDigits = 16

// foreignCounter says why acquire.lua would refuse the token counter.
func foreignCounter(text string) string {
	n, err := strconv.ParseUint(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && n >= script.MaxCounter:
		return fmt.Sprintf("its token counter is %.32s, and the largest is 2^53 - 1", text)
	case err == nil && len(text) > maxDigits:
		return fmt.Sprintf("its token counter has more than %d digits: %.32s", maxDigits, text)
	case err != nil:
		return fmt.Sprintf("its token counter is no number: %.32q", text)
	}
	return ""
}

// woken matches what the key next says of a waiter that was woken up.
var woken = regexp.MustCompile(`^\S+ (\d+)(?: |$)`)

// foreignWakeUp says why queue.lua would not believe the key next.
func (x *Examination) foreignWakeUp(text string) string {
	match := woken.FindStringSubmatch(text)
	if match == nil {
		return ""
	}
	// A number that is too large for an int64 is read as the largest.
	if until, _ := strconv.ParseInt(match[1], 10, 64); until > x.latest(script.Grace) {
		return fmt.Sprintf("it calls somebody until %.32s, in ms since 1970, which is later than a client writes", match[1])
	}
	return ""
}

// latest returns the last ms of the node's clock that a client can have written for a deadline of d
// from now. The clock was read in whole seconds, and a while ago. Where it could not be read, any
// time is right.
func (x *Examination) latest(d time.Duration) int64 {
	if !x.ClockKnown {
		return math.MaxInt64
	}
	return x.evidence.now*1000 + (d + examineGrace).Milliseconds()
}

// examineGrace is longer than one look at a node takes.
const examineGrace = 30 * time.Second
