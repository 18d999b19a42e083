package locking

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/vote"
)

// A grant that is repeated and the steps that follow it, on one server: they are for all names of a lock or for none, they shorten nothing, take no
// counter back, and leave what is another's. A counter that they write lasts for longer than the longest TTL. A reader's hold and the list of the
// readers last as long as the key. An extension ends what somebody has made persistent.
func TestStepsAfterAGrant(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := locktest.SharedOf(t, binary, 1)[0]
		for kind, c := range map[string]struct {
			also   []string
			shared bool
			key    func(name string) string
		}{
			"one name": {}, "several names": {also: []string{"/also", "/too"}}, "a reader": {shared: true},
			"a slot": {key: func(name string) string { return locktest.SlotKey(name, 0) }},
		} {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				n := newReadersNode(t, server)
				if c.key != nil {
					n.key = c.key(n.key)
				}
				stepsAfterAGrant(n, n.node, c.also, c.shared)
			})
		}
		for kind, joined := range together {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				n := newReadersNode(t, server)
				stepsAfterAGrant(n, joined(n.node), nil, false)
			})
		}
	})
}

// steps are those that go to a server by themselves or together with others.
type steps interface {
	Acquire(ctx context.Context, r vote.Acquire) vote.Answer
	Extend(ctx context.Context, r vote.Extend) vote.Answer
	Release(ctx context.Context, r vote.Release) vote.Answer
}

// together are the ways in which a node's steps go together with others. The file of each adds it.
var together = map[string]func(*node.Node) steps{}

func stepsAfterAGrant(n readersNode, steps steps, also []string, shared bool) {
	const longest, long, short, patience = 3 * time.Minute, 2 * time.Minute, time.Minute, 50 * time.Second
	t, server, keys := n.T, n.server, []string{n.key}
	for _, other := range also {
		keys = append(keys, n.key+other)
	}
	var with *vote.Keys
	if len(keys) > 1 {
		others := vote.Keys(keys[1:])
		with = &others
	}
	lasts := func(after string, ttl time.Duration, counter uint64) {
		t.Helper()
		left := make(map[string]time.Duration)
		for _, key := range keys {
			left[key] = locktest.Remaining(t, server, key)
		}
		if readers := node.ReadersKey(n.key); shared {
			left[readers] = locktest.Remaining(t, server, readers)
			end, _ := strconv.ParseInt(locktest.Do(t, server, "ZSCORE", readers, "mine").(string), 10, 64)
			left["the reader"] = time.UnixMilli(end).Sub(locktest.ServerTime(t, server))
		}
		for what, d := range left {
			if d > ttl || d < ttl-patience {
				t.Errorf("%s: %q has %v left, not %v", after, what, d, ttl)
			}
		}
		for _, key := range keys {
			if c := locktest.Value(t, server, node.CounterKey(key)); c != strconv.FormatUint(counter, 10) {
				t.Errorf("%s: the counter of %q is %s, not %d", after, key, c, counter)
			}
		}
	}
	counted := func(after string, ttl time.Duration, counter uint64) {
		t.Helper()
		lasts(after, ttl, counter)
		for _, key := range keys {
			if left := locktest.Remaining(t, server, node.CounterKey(key)); left < longest-patience {
				t.Errorf("%s: the counter of %q has %v left", after, key, left)
			}
		}
	}
	now := uint64(locktest.ServerTime(t, server).UnixMicro())
	acquisition := vote.Acquire{Key: n.key, With: with, ID: "mine", TTL: short, Proposed: now, Shared: shared}
	a := steps.Acquire(t.Context(), acquisition)
	n.is("acquired", a.Verdict, vote.Granted)
	counted("acquired", short, a.Counter)
	acquisition.TTL, acquisition.Proposed = long, now+1000
	if again := steps.Acquire(t.Context(), acquisition); again.Verdict != vote.Granted || again.Counter != a.Counter {
		t.Errorf("a repeat is %v, under %d after %d", again.Verdict, again.Counter, a.Counter)
	}
	lasts("repeated", short, a.Counter)
	// Where nothing says what the grant was under, a repeat is no vote. A reader's key says it itself.
	want := vote.Refused
	switch {
	case with != nil:
		want = vote.Held // by itself
	case shared:
		want = vote.Granted
	}
	locktest.Do(t, server, "DEL", node.CounterKey(n.key))
	again := steps.Acquire(t.Context(), acquisition)
	if again.Verdict != want || want == vote.Granted && again.Counter != a.Counter {
		t.Errorf("a repeat where the counter is gone is %v, under %d after %d", again.Verdict, again.Counter, a.Counter)
	}
	locktest.Do(t, server, "SET", node.CounterKey(n.key), strconv.FormatUint(a.Counter, 10))

	confirmation := vote.Confirm{Key: n.key, With: with, ID: "mine", Granted: a.Counter, Token: a.Counter + 1, Shared: shared}
	n.is("confirmed", n.node.Confirm(t.Context(), confirmation).Verdict, vote.Granted)
	confirmation.Token++
	if shared { // a larger counter is that of another reader
		confirmation.Granted--
	}
	n.is("confirmed under a counter that is gone", n.node.Confirm(t.Context(), confirmation).Verdict, vote.NotOurs)
	counted("confirmed", short, a.Counter+1)

	lost := keys[len(keys)-1] // the others are still there
	extension := vote.Extend{Key: n.key, With: with, ID: "mine", TTL: long, Token: a.Counter + 2, Shared: shared}
	extend := func() vote.Verdict { return steps.Extend(t.Context(), extension).Verdict }
	refused := func(what string, extended vote.Verdict) {
		t.Helper()
		n.is(what+": extended", extend(), extended)
		n.is(what+": given back", n.node.Repair(t.Context(), extension).Verdict, vote.NotOurs)
		for _, key := range keys[:len(keys)-1] {
			if left := locktest.Remaining(t, server, key); left > short {
				t.Errorf("%s: %q has %v left", what, key, left)
			}
		}
	}
	later := strconv.FormatUint(extension.Token+1, 10)
	locktest.Do(t, server, "DEL", lost)
	confirmation.Granted = a.Counter + 1
	n.is("confirmed where the key is gone", n.node.Confirm(t.Context(), confirmation).Verdict, vote.NotOurs)
	locktest.Do(t, server, "SET", lost, "theirs", "PX", "300000")
	refused("another's", vote.Held)
	locktest.Do(t, server, "DEL", lost, node.CounterKey(lost))
	locktest.Do(t, server, "HSET", lost, "theirs", "1")
	n.is("of another kind", n.node.Repair(t.Context(), extension).Verdict, vote.NotOurs)
	if kind := locktest.Do(t, server, "TYPE", lost); kind != "hash" {
		t.Errorf("a lock of another kind was replaced by a %v", kind)
	}

	locktest.Do(t, server, "DEL", lost)
	locktest.Do(t, server, "SET", node.CounterKey(lost), later) // by another's attempt
	n.is("where another tried", n.node.Repair(t.Context(), extension).Verdict, vote.Granted)
	if shared { // those who join must not be granted under a writer's number
		later = strconv.FormatUint(extension.Token+2, 10)
	}
	if v := locktest.Value(t, server, node.CounterKey(lost)); v != later {
		t.Errorf("where another tried: the counter is %s, not %s", v, later)
	}
	locktest.Do(t, server, "DEL", lost)
	locktest.Do(t, server, "SET", node.CounterKey(lost), strconv.FormatUint(extension.Token, 10)) // by no other holder
	n.is("given back", n.node.Repair(t.Context(), extension).Verdict, vote.Granted)
	locktest.Do(t, server, "DEL", lost, node.CounterKey(lost))
	n.is("given back with its counter", n.node.Repair(t.Context(), extension).Verdict, vote.Granted)
	counted("given back", long, extension.Token)
	n.is("given back again", n.node.Repair(t.Context(), extension).Verdict, vote.Granted)
	extension.TTL, extension.Token = longest, extension.Token+1
	locktest.Do(t, server, "DEL", node.CounterKey(n.key))
	n.is("extended", extend(), vote.Granted)
	counted("extended", longest, extension.Token)
	for _, key := range keys {
		locktest.Do(t, server, "PERSIST", key)
	}
	n.is("extended after somebody made it persistent", extend(), vote.Granted)
	endless := longest
	if !shared {
		endless += 4 * time.Second // the counter's TTL: no validity is longer
	}
	lasts("extended after somebody made it persistent", endless, extension.Token)

	later = strconv.FormatUint(extension.Token+1, 10)
	for _, key := range keys { // it was granted under a larger counter than the token
		locktest.Do(t, server, "SET", node.CounterKey(key), later, "PX", "300000")
	}
	extension.TTL = short
	n.is("extended for less", extend(), vote.Granted)
	n.is("given back for less", n.node.Repair(t.Context(), extension).Verdict, vote.Granted)
	lasts("for less, under a larger counter", endless, extension.Token+1)

	release := vote.Release{Key: n.key, With: with, ID: "min", TTL: long, Token: extension.Token + 2, Shared: shared}
	n.is("released by another", steps.Release(t.Context(), release).Verdict, vote.Held)
	release.Token = 0
	n.is("released by another, without a token", steps.Release(t.Context(), release).Verdict, vote.Held)
	lasts("released by another", endless, extension.Token+1)
	release.ID, release.Token = "mine", extension.Token+2
	n.is("released", steps.Release(t.Context(), release).Verdict, vote.Granted)
	for _, key := range keys {
		if left := locktest.Remaining(t, server, node.CounterKey(key)); left < longest-patience {
			t.Errorf("released: the counter of %q has %v left", key, left)
		}
		if v, c := locktest.Value(t, server, key), locktest.Value(t, server, node.CounterKey(key)); v != "" || c != strconv.FormatUint(release.Token, 10) {
			t.Errorf("released: %q has %q, and its counter is %s", key, v, c)
		}
	}

	acquisition.Proposed = release.Token
	a = steps.Acquire(t.Context(), acquisition)
	if a.Verdict != vote.Granted || a.Counter <= release.Token {
		t.Errorf("acquired again: %v, under %d after %d", a.Verdict, a.Counter, release.Token)
	}
	release.Token = a.Counter - 1
	n.is("released with a smaller token", steps.Release(t.Context(), release).Verdict, vote.Granted)
	n.is("released again", steps.Release(t.Context(), release).Verdict, vote.NotOurs)
	for _, key := range keys {
		if v, c := locktest.Value(t, server, key), locktest.Value(t, server, node.CounterKey(key)); v != "" || c != strconv.FormatUint(a.Counter, 10) {
			t.Errorf("released with a smaller token: %q has %q, and its counter is %s, not %d", key, v, c, a.Counter)
		}
	}
	locktest.Do(t, server, "HSET", lost, "theirs", "1")
	a = steps.Acquire(t.Context(), acquisition)
	n.is("acquired where there is another kind", a.Verdict, vote.Refused)
	if !strings.Contains(fmt.Sprint(a.Err), "another kind") {
		t.Errorf("acquired where there is another kind: %v", a.Err)
	}
	if kind := locktest.Do(t, server, "TYPE", lost); kind != "hash" {
		t.Errorf("a lock of another kind was replaced by a %v", kind)
	}
	for _, key := range keys[:len(keys)-1] {
		if v := locktest.Value(t, server, key); v != "" {
			t.Errorf("%q was acquired beside a lock of another kind", key)
		}
	}
	n.is("released where there is another kind", steps.Release(t.Context(), release).Verdict, vote.Refused)
}
