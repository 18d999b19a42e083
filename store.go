package redlatch

import (
	"context"

	"github.com/redlatch/redlatch/internal/hook"
)

// store is a member that is no Redis, which another module brings.
type store struct{ hook.Store }

// store returns the client's, if it has one: then it is the only member.
func (c *Client) store() (s store, ok bool) {
	if len(c.nodes) == 1 {
		s, ok = c.nodes[0].(store)
	}
	return s, ok
}

var (
	errNoOneShot = invalid("these servers end a lock with the session of the client that took it: use Lock, which renews and releases it")
	errNoVouch   = invalid("these servers forget no lock when one of them restarts: there is nothing to admit or to reset")
)

// unfit is why no lock can be had with these settings, or nil.
func (s store) unfit() error {
	if err := s.Err(); err != nil {
		return invalid("%w", err)
	}
	return nil
}

func (store) Vouch(context.Context) error { return errNoVouch }
func (store) Reset(context.Context) error { return errNoVouch }
func (store) InQuarantine() bool          { return false }
