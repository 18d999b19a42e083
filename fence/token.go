package fence

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// MaxToken is the largest token a guard accepts, 2^53 − 1: above it a Lua or JSON number is no longer exact.
const MaxToken uint64 = 1<<53 - 1

var (
	// ErrStale is found by errors.Is in every error that says that a later holder's token has been seen. The access did
	// not take place, and no repetition with the same token ever will: the lock is lost.
	ErrStale = errors.New("fence: stale token")

	// ErrInvalid is found by errors.Is in every error about an argument or a setting that cannot be right, such as
	// token 0 or an empty resource name. Nothing was changed. Nothing was sent either, except where a Column's Key turned out
	// to be the same in several rows.
	ErrInvalid = errors.New("fence: invalid argument")
)

// StaleError says which token was refused and why. errors.Is finds ErrStale in it; errors.AsType reads it.
type StaleError struct {
	Resource string // what was to be accessed
	Token    uint64 // the token that was refused
	Largest  uint64 // the largest token seen for Resource, of writers alone where a reader is refused; or the floor of a guard that forgets, below which it refuses all
}

// Error names the resource and both tokens.
func (e *StaleError) Error() string {
	return fmt.Sprintf("fence: stale token: %d for %q, which has seen %d: a later holder has the lock", e.Token, e.Resource, e.Largest)
}

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// A Store remembers the largest token of each resource. [Memory] and [Redis] are Stores, and [Table.Store] makes one of
// a [Table]. Any Store can stand behind [HTTP] and [Admit].
type Store interface {
	// Enter announces token at resource: it returns nil if no larger token was announced there before, in which case
	// every smaller one is refused from now on, and a *StaleError otherwise. It must be linearizable: a call that
	// starts after another returned nil sees that call's token.
	Enter(ctx context.Context, resource string, token uint64) error
}

// A SharedStore is a [Store] that distinguishes readers from writers, as a read-write lock does. [Memory] and [Redis]
// are SharedStores, and so is what [Table.Store] returns.
type SharedStore interface {
	Store

	// EnterShared announces a reader's token at resource: it returns nil if no writer announced a larger one there before
	// by Enter, in which case every writer with a smaller one is refused from now on, and a *StaleError otherwise. Readers
	// do not refuse each other. One token is either a reader's or a writer's. It must be linearizable together with Enter.
	EnterShared(ctx context.Context, resource string, token uint64) error
}

// ParseToken reads a token as [HTTP] headers and gRPC metadata carry it: decimal digits, without sign, blanks or
// leading zeros. The error is ErrInvalid.
func ParseToken(s string) (uint64, error) {
	// Leading zeros and signs are refused so that one token has one text, which proxies and logs can compare.
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || s[0] == '0' {
		return 0, fmt.Errorf("%w: token %.40q: want a decimal number from 1 to %d", ErrInvalid, s, MaxToken)
	}
	return n, checkToken(n)
}

// checkToken refuses a number that no lock hands out.
func checkToken(token uint64) error {
	switch {
	case token == 0:
		return fmt.Errorf("%w: token 0: pass the fencing token of the held lock, the first of which is 1", ErrInvalid)
	case token > MaxToken:
		return fmt.Errorf("%w: token %d is above 2^53 − 1 and would lose digits in Lua and JSON: pass the fencing token of the held lock", ErrInvalid, token)
	}
	return nil
}

// check refuses a token or resource name before anything is sent.
func check(resource string, token uint64) error {
	if err := checkName(resource); err != nil {
		return err
	}
	return checkToken(token)
}

// checkName refuses a resource without a name.
func checkName(resource string) error {
	if resource == "" {
		return fmt.Errorf("%w: empty resource name: name what the lock protects, such as \"account:42\"", ErrInvalid)
	}
	return nil
}

// checkContext refuses a ctx that is nil.
func checkContext(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("%w: ctx is nil: pass context.Background() or the request's context", ErrInvalid)
	}
	return nil
}
