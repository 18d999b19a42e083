package fence

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// The guard is tested with real servers in the module guardtest; here is what needs none.

func TestRedisRefusesInvalid(t *testing.T) {
	ctx := t.Context()
	sent := 0
	eval := func(context.Context, string, []string, []string) (any, error) {
		sent++
		return []any{"ok"}, nil
	}
	a, err := Redis{Eval: eval}.Open(ctx, "a", 1)
	if err != nil || sent != 1 {
		t.Fatal(err, sent)
	}
	for name, err := range map[string]error{
		"no Eval":           Redis{}.Enter(ctx, "a", 1),
		"no Eval in Forget": Redis{}.Forget(ctx, "a"),
		"Keep 1s":           Redis{Eval: eval, Keep: time.Second}.Enter(ctx, "a", 1),
		"Keep -1h":          Redis{Eval: eval, Keep: -time.Hour}.Enter(ctx, "a", 1),
		"token 0":           Redis{Eval: eval}.Enter(ctx, "a", 0),
		"token 2^53":        Redis{Eval: eval}.Enter(ctx, "a", MaxToken+1),
		"empty key":         Redis{Eval: eval}.Enter(ctx, "", 1),
		"Forget no key":     Redis{Eval: eval}.Forget(ctx, ""),
		"TTL -1":            a.Set(ctx, "x", -1),
		"TTL 1µs":           a.Set(ctx, "x", time.Microsecond),
		"no fields":         a.HSet(ctx, nil),
	} {
		if !errors.Is(err, ErrInvalid) || errors.Is(err, ErrStale) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if sent != 1 {
		t.Errorf("%d scripts sent for invalid calls", sent-1)
	}
}

// TestRedisReplies feeds what clients could make of a reply, so that none of it passes for a success.
func TestRedisReplies(t *testing.T) {
	failed := errors.New("failed")
	var reply any
	var replyErr error
	r := Redis{Eval: func(context.Context, string, []string, []string) (any, error) { return reply, replyErr }}
	a := &Access{redis: r, key: "a", token: 33, guards: []string{guardKey("a")}}
	get := func() error {
		value, found, err := a.Get(t.Context())
		if err != nil && (value != "" || found) {
			t.Errorf("%q, %t beside %v", value, found, err)
		}
		return err
	}
	all := func() error { _, err := a.HGetAll(t.Context()); return err }

	for _, c := range []struct {
		name  string
		reply any
		err   error
		call  func() error
		is    error  // found by errors.Is, nil for any error
		says  string // part of the error, empty for success
	}{
		{"strings", []any{"ok", "value"}, nil, get, nil, ""},
		{"bytes", []any{[]byte("ok"), []byte("value")}, nil, get, nil, ""},
		{"absent", []any{"ok"}, nil, get, nil, ""},
		{"absent as nil", []any{"ok", nil}, nil, get, nil, ""},
		{"hash", []any{"ok", []any{"f", []byte("v")}}, nil, all, nil, ""},
		{"empty hash", []any{"ok", []any{}}, nil, all, nil, ""},
		{"stale", []any{"stale", "34"}, nil, get, ErrStale, "34"},
		{"stale bytes", []any{[]byte("stale"), []byte("34")}, nil, get, ErrStale, "34"},
		{"stale, no number", []any{"stale", "1.7e+15"}, nil, get, ErrStale, "1.7e+15"},
		{"stale, integer", []any{"stale", int64(34)}, nil, get, nil, "int64"},
		{"stale, nothing", []any{"stale"}, nil, get, nil, "stale"},
		{"error", nil, failed, get, failed, "failed"},
		{"error in the array", []any{"ok", failed}, nil, get, failed, "failed"},
		{"nil", nil, nil, get, nil, "nil"},
		{"empty", []any{}, nil, get, nil, "want []any"},
		{"a string", "ok", nil, get, nil, "string"},
		{"typed strings", []string{"ok", "x"}, nil, get, nil, "[]string"},
		{"another status", []any{"OK"}, nil, get, nil, "OK"},
		{"no status", []any{int64(1)}, nil, get, nil, "int64"},
		{"integer value", []any{"ok", int64(1)}, nil, get, nil, "int64"},
		{"hash as a string", []any{"ok", "x"}, nil, all, nil, "string"},
		{"half a hash", []any{"ok", []any{"f"}}, nil, all, nil, "value for each field"},
		{"hash of integers", []any{"ok", []any{"f", int64(1)}}, nil, all, nil, "int64"},
	} {
		reply, replyErr = c.reply, c.err
		err := c.call()
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want an error that says %s", c.name, err, c.says)
		case c.is != nil && !errors.Is(err, c.is):
			t.Errorf("%s: %v, want %v", c.name, err, c.is)
		case c.is == nil && errors.Is(err, ErrStale):
			t.Errorf("%s: %v passes for stale", c.name, err)
		}
	}
}
