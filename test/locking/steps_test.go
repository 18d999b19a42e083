package locking

import (
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/vote"
)

// A grant that is repeated and the steps that follow it, on one server: they are for all names of a lock or for none, they shorten nothing, take no
// counter back, and leave what is another's. A counter that they write lasts for longer than the longest TTL.
func TestStepsAfterAGrant(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := locktest.SharedOf(t, binary, 1)[0]
		for kind, also := range map[string][]string{"one name": nil, "several names": {"/also", "/too"}} {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				stepsAfterAGrant(t, server, also)
			})
		}
	})
}

func stepsAfterAGrant(t *testing.T, server *redistest.Server, also []string) {
	const longest, long, short, patience = 3 * time.Minute, 2 * time.Minute, time.Minute, 50 * time.Second
	n := newReadersNode(t, server)
	keys := []string{n.key}
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
		for _, key := range keys {
			if left := locktest.Remaining(t, server, key); left > ttl || left < ttl-patience {
				t.Errorf("%s: %q has %v left, not %v", after, key, left, ttl)
			}
			if c := locktest.Value(t, server, tokenKey(key)); c != strconv.FormatUint(counter, 10) {
				t.Errorf("%s: the counter of %q is %s, not %d", after, key, c, counter)
			}
		}
	}
	counted := func(after string, ttl time.Duration, counter uint64) {
		t.Helper()
		lasts(after, ttl, counter)
		for _, key := range keys {
			if left := locktest.Remaining(t, server, tokenKey(key)); left < longest-patience {
				t.Errorf("%s: the counter of %q has %v left", after, key, left)
			}
		}
	}
	now := uint64(locktest.ServerTime(t, server).UnixMicro())
	acquisition := vote.Acquire{Key: n.key, With: with, ID: "mine", TTL: short, Proposed: now}
	a := n.node.Acquire(t.Context(), acquisition)
	n.is("acquired", a.Verdict, vote.Granted)
	counted("acquired", short, a.Counter)
	acquisition.TTL, acquisition.Proposed = long, now+1000
	if again := n.node.Acquire(t.Context(), acquisition); again.Verdict != vote.Granted || again.Counter != a.Counter {
		t.Errorf("a repeat is %v, under %d after %d", again.Verdict, again.Counter, a.Counter)
	}
	lasts("repeated", short, a.Counter)

	confirmation := vote.Confirm{Key: n.key, With: with, ID: "mine", Granted: a.Counter, Token: a.Counter + 1}
	n.is("confirmed", n.node.Confirm(t.Context(), confirmation).Verdict, vote.Granted)
	confirmation.Token++
	n.is("confirmed under a counter that is gone", n.node.Confirm(t.Context(), confirmation).Verdict, vote.NotOurs)
	counted("confirmed", short, a.Counter+1)

	lost := keys[len(keys)-1] // the others are still there
	extension := vote.Extend{Key: n.key, With: with, ID: "mine", TTL: long, Token: a.Counter + 2}
	refused := func(what string, extended vote.Verdict) {
		t.Helper()
		n.is(what+": extended", n.node.Extend(t.Context(), extension).Verdict, extended)
		n.is(what+": given back", n.node.Repair(t.Context(), extension).Verdict, vote.NotOurs)
		for _, key := range keys[:len(keys)-1] {
			if left := locktest.Remaining(t, server, key); left > short {
				t.Errorf("%s: %q has %v left", what, key, left)
			}
		}
	}
	later := strconv.FormatUint(extension.Token+1, 10)
	locktest.Do(t, server, "DEL", lost)
	locktest.Do(t, server, "SET", tokenKey(lost), later)
	refused("after a later holder", vote.NotOurs)
	locktest.Do(t, server, "SET", lost, "theirs", "PX", "300000")
	refused("another's", vote.Held)
	locktest.Do(t, server, "DEL", lost, tokenKey(lost))
	locktest.Do(t, server, "HSET", lost, "theirs", "1")
	n.is("of another kind", n.node.Repair(t.Context(), extension).Verdict, vote.NotOurs)
	if kind := locktest.Do(t, server, "TYPE", lost); kind != "hash" {
		t.Errorf("a lock of another kind was replaced by a %v", kind)
	}

	locktest.Do(t, server, "DEL", lost)
	locktest.Do(t, server, "SET", tokenKey(lost), strconv.FormatUint(extension.Token, 10)) // by no other holder
	n.is("given back", n.node.Repair(t.Context(), extension).Verdict, vote.Granted)
	locktest.Do(t, server, "DEL", lost, tokenKey(lost))
	n.is("given back with its counter", n.node.Repair(t.Context(), extension).Verdict, vote.Granted)
	counted("given back", long, extension.Token)
	n.is("given back again", n.node.Repair(t.Context(), extension).Verdict, vote.Granted)
	extension.TTL, extension.Token = longest, extension.Token+1
	locktest.Do(t, server, "DEL", tokenKey(n.key))
	n.is("extended", n.node.Extend(t.Context(), extension).Verdict, vote.Granted)
	counted("extended", longest, extension.Token)

	later = strconv.FormatUint(extension.Token+1, 10)
	for _, key := range keys { // it was granted under a larger counter than the token
		locktest.Do(t, server, "SET", tokenKey(key), later, "PX", "300000")
	}
	extension.TTL = short
	n.is("extended for less", n.node.Extend(t.Context(), extension).Verdict, vote.Granted)
	n.is("given back for less", n.node.Repair(t.Context(), extension).Verdict, vote.Granted)
	lasts("for less, under a larger counter", longest, extension.Token+1)

	release := vote.Release{Key: n.key, With: with, ID: "mine", TTL: long, Token: extension.Token + 2}
	n.is("released", n.node.Release(t.Context(), release).Verdict, vote.Granted)
	for _, key := range keys {
		if left := locktest.Remaining(t, server, tokenKey(key)); left < longest-patience {
			t.Errorf("released: the counter of %q has %v left", key, left)
		}
		if v, c := locktest.Value(t, server, key), locktest.Value(t, server, tokenKey(key)); v != "" || c != strconv.FormatUint(release.Token, 10) {
			t.Errorf("released: %q has %q, and its counter is %s", key, v, c)
		}
	}
}
