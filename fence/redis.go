package fence

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/hashslot"
)

// Eval runs a Lua script on the server that has keys, and returns the reply as the client decodes it: an array as []any,
// a string as string or []byte. With go-redis it is
//
//	func(ctx context.Context, script string, keys, args []string) (any, error) {
//		return redis.NewScript(script).Run(ctx, client, keys, args).Result()
//	}
//
// and with rueidis
//
//	func(ctx context.Context, script string, keys, args []string) (any, error) {
//		return rueidis.NewLuaScript(script).Exec(ctx, client, keys, args).ToAny()
//	}
//
// It must be safe for concurrent use. There are a handful of scripts, besides those of [Access.Run].
type Eval func(ctx context.Context, script string, keys, args []string) (any, error)

// Redis guards keys of a Redis or Valkey server or Cluster, one guard for each. It needs no more of the server than EVAL
// and the commands it uses. It is safe for concurrent use.
//
// The guard of a key is a second key, named redlatch:{tag}:guard:key, in the same Cluster hash slot. It is as durable
// as the server makes it. A failover or a restart that loses the last writes loses announcements as well; what this
// package promises then starts anew. An eviction policy named allkeys-… can remove guards: use noeviction, or a
// volatile-… policy with Keep zero.
type Redis struct {
	// Eval runs the scripts. Required.
	Eval Eval

	// Keep is how long a guard stays after the last access to its key. A guard that expired has forgotten, and would
	// let an old holder in. So with Keep set, a key without a guard refuses a token that is older than half of Keep by
	// the server's clock. That requires clocks that agree within half of Keep, and tokens that are microseconds since
	// 1970, as Redlatch's are on Redis. On ZooKeeper and etcd they are not: leave Keep 0 there; a token that is a year
	// ahead of the clock is ErrInvalid. A holder is then refused if it lets half of Keep pass before its first access,
	// or Keep between two accesses. A day is a good value where keys come and go. All who access a key must agree on
	// it. The minimum is a minute. Defaults to 0: guards stay for ever, one small key for each key guarded, until
	// [Redis.Forget]. Where Keep was set before, a guard stays for ever from its first access without it, and expires,
	// having forgotten, if there is none in time.
	Keep time.Duration
}

// Access is one holder's way to one key, which [Redis.Open] hands out once the token has been announced. Each method
// checks the token again, in one atomic step with what it does: a *StaleError ([ErrStale]) means that nothing was done
// and the lock is lost. It has nothing to close and is safe for concurrent use.
//
// The methods block for a round trip; ctx goes to Eval. Other errors are Eval's or the server's, wrapped. After a lost
// reply it is not known whether the step took place. A client that then sends the script again by itself can report
// ErrStale for a write that took place, if a later holder came in between; that holder has seen the write.
type Access struct {
	redis  Redis
	key    string
	token  uint64
	enter  string   // the script that compares
	guards []string // its keys
	shared bool     // a reader's, see OpenShared
}

//go:embed lua/enter.lua
var enterLua string

//go:embed lua/get.lua
var getLua string

//go:embed lua/set.lua
var setLua string

//go:embed lua/hgetall.lua
var hgetallLua string

//go:embed lua/hset.lua
var hsetLua string

//go:embed lua/del.lua
var delLua string

// Enter announces token at key and does nothing else, so that [Redis] is a [Store]. To read or write key as well, use
// [Redis.Open].
func (r Redis) Enter(ctx context.Context, key string, token uint64) error {
	_, err := r.Open(ctx, key, token)
	return err
}

// Open announces token at key and returns the way to read and write it. After Open no earlier holder can change what is
// read, even by other means; before it, one could. It blocks for a round trip; ctx goes to Eval. A refusal is a
// *StaleError ([ErrStale]). For an argument or field that cannot be right, errors.Is finds [ErrInvalid].
func (r Redis) Open(ctx context.Context, key string, token uint64) (*Access, error) {
	return (&Access{redis: r, key: key, token: token, enter: enterLua, guards: []string{guardKey(key)}}).open(ctx)
}

// open checks the arguments and announces the token.
func (a *Access) open(ctx context.Context) (*Access, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	if err := check(a.key, a.token); err != nil {
		return nil, err
	}
	switch r := a.redis; {
	case r.Eval == nil:
		return nil, fmt.Errorf("%w: Redis.Eval is nil: set it to a function that runs a script with your client", ErrInvalid)
	case r.Keep != 0 && r.Keep < time.Minute:
		return nil, fmt.Errorf("%w: Redis.Keep is %v: want 0, for ever, or a minute at least, a day being a good value", ErrInvalid, r.Keep)
	case r.Keep != 0 && a.token > uint64(time.Now().AddDate(1, 0, 0).UnixMicro()):
		return nil, fmt.Errorf("%w: Redis.Keep is %v, and the token %d is a year ahead of the clock, as those of ZooKeeper and etcd are: leave Keep 0, as a guard that expired would let all of them in", ErrInvalid, r.Keep, a.token)
	}
	if _, err := a.Run(ctx, "", nil, nil); err != nil {
		return nil, err
	}
	return a, nil
}

// Get returns the string at the key, with false if there is none.
func (a *Access) Get(ctx context.Context) (string, bool, error) {
	reply, err := a.run(ctx, getLua)
	if err != nil || reply == nil {
		return "", false, err
	}
	value, err := text(reply)
	return value, err == nil, err
}

// Set stores value at the key for ttl, which is counted in milliseconds, or for ever if ttl is 0. It replaces an
// earlier TTL.
func (a *Access) Set(ctx context.Context, value string, ttl time.Duration) error {
	args := []string{value}
	switch {
	case ttl < 0 || ttl > 0 && ttl < time.Millisecond:
		return fmt.Errorf("%w: ttl is %v: want 0, for ever, or a millisecond at least", ErrInvalid, ttl)
	case ttl > 0:
		args = append(args, strconv.FormatInt(ttl.Milliseconds(), 10))
	}
	return a.write(ctx, setLua, args...)
}

// HGetAll returns the fields of the hash at the key, none if there is no key.
func (a *Access) HGetAll(ctx context.Context) (map[string]string, error) {
	reply, err := a.run(ctx, hgetallLua)
	if err != nil {
		return nil, err
	}
	flat, ok := reply.([]any)
	if !ok || len(flat)%2 != 0 {
		return nil, fmt.Errorf("fence: Redis.Eval gave %T for a hash: want []any with a value for each field", reply)
	}
	fields := make(map[string]string, len(flat)/2)
	for i := 0; i < len(flat); i += 2 {
		field, err := text(flat[i])
		if err != nil {
			return nil, err
		}
		if fields[field], err = text(flat[i+1]); err != nil {
			return nil, err
		}
	}
	return fields, nil
}

// HSet sets fields of the hash at the key and leaves its other fields as they are.
func (a *Access) HSet(ctx context.Context, fields map[string]string) error {
	if len(fields) == 0 {
		return fmt.Errorf("%w: no fields to set: pass one or more", ErrInvalid)
	}
	args := make([]string, 0, 2*len(fields))
	for field, value := range fields {
		args = append(args, field, value)
	}
	return a.write(ctx, hsetLua, args...)
}

// Del deletes the key and leaves its guard, which the next holder needs.
func (a *Access) Del(ctx context.Context) error {
	return a.write(ctx, delLua)
}

// Run runs a Lua script of your own as the guarded step, for other types, several keys, or a read and a write in one.
// KEYS and ARGV of script are keys and args; in a Cluster, keys must be in the slot of the Access's key. The reply is
// what the script returns, nil for nothing. Note that Lua turns a number into an integer, and that its tostring loses
// digits of a large one. If the script fails half-way, the server keeps what it had written.
func (a *Access) Run(ctx context.Context, script string, keys, args []string) (any, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	keep := strconv.FormatInt(a.redis.Keep.Milliseconds(), 10)
	keys = append(slices.Clip(a.guards), keys...)
	args = append([]string{strconv.FormatUint(a.token, 10), keep}, args...)
	// The script is a function of its own: that keeps its names apart from those of the script that compares, and its
	// parameters hide the guard.
	script = a.enter + "local function body(KEYS, ARGV)\n" + script + "\nend\nreturn {'ok', body(keys, args)}\n"

	reply, err := a.redis.Eval(ctx, script, keys, args)
	if err != nil {
		return nil, fmt.Errorf("fence: accessing %q: %w", a.key, err)
	}
	parts, ok := reply.([]any)
	if !ok || len(parts) == 0 {
		return nil, fmt.Errorf("fence: Redis.Eval gave %T for an array: want []any", reply)
	}
	status, err := text(parts[0])
	if err != nil {
		return nil, err
	}
	switch {
	case status == "stale" && len(parts) == 2:
		return nil, a.stale(parts[1])
	case status != "ok":
		return nil, fmt.Errorf("fence: Redis.Eval gave %.40q: not an answer of the script", status)
	case len(parts) == 1:
		return nil, nil
	}
	if err, ok := parts[1].(error); ok {
		return nil, fmt.Errorf("fence: accessing %q: %w", a.key, err)
	}
	return parts[1], nil
}

// run is Run for the scripts that access the one key.
func (a *Access) run(ctx context.Context, script string, args ...string) (any, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	return a.Run(ctx, script, []string{a.key}, args)
}

// write is run for the scripts that change the key, which a reader must not.
func (a *Access) write(ctx context.Context, script string, args ...string) error {
	if a.shared {
		return fmt.Errorf("%w: the access to %q is a reader's: to write, hold the lock as a writer and use Redis.Open", ErrInvalid, a.key)
	}
	_, err := a.run(ctx, script, args...)
	return err
}

// stale makes the error of a refusal.
func (a *Access) stale(reply any) error {
	digits, err := text(reply)
	if err != nil {
		return err
	}
	largest, err := ParseToken(digits)
	if err != nil {
		return errors.Join(ErrStale, err)
	}
	return &StaleError{Resource: a.key, Token: a.token, Largest: largest}
}

// Forget deletes key's guard. A guard that has forgotten accepts the old holder, so call it only when key is gone for
// good. Keys that come and go are better served by Keep.
func (r Redis) Forget(ctx context.Context, key string) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if r.Eval == nil {
		return fmt.Errorf("%w: Redis.Eval is nil: set it to a function that runs a script with your client", ErrInvalid)
	}
	if err := checkName(key); err != nil {
		return err
	}
	if _, err := r.Eval(ctx, delLua, []string{guardKey(key), sharedKey(key)}, nil); err != nil {
		return fmt.Errorf("fence: forgetting %q: %w", key, err)
	}
	return nil
}

// text accepts both types in which clients return a string.
func text(reply any) (string, error) {
	switch s := reply.(type) {
	case string:
		return s, nil
	case []byte:
		return string(s), nil
	}
	return "", fmt.Errorf("fence: Redis.Eval gave %T for a string: want string or []byte", reply)
}

// guardKey names the key that holds the largest token of key. It lies in key's Cluster hash slot, so that one script may
// touch both.
func guardKey(key string) string {
	return "redlatch:{" + hashslot.Tag(key) + "}:guard:" + key
}
