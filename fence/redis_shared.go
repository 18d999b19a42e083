package fence

import (
	"context"
	_ "embed"

	"github.com/redlatch/redlatch/internal/hashslot"
)

//go:embed lua/enter_shared.lua
var enterSharedLua string

// EnterShared announces a reader's token at key and does nothing else, see [SharedStore]. To read key as well, use
// [Redis.OpenShared].
func (r Redis) EnterShared(ctx context.Context, key string, token uint64) error {
	_, err := r.OpenShared(ctx, key, token)
	return err
}

// OpenShared is [Redis.Open] for a reader. Its token may be smaller than that of another reader, but not smaller than a
// writer's, which is the one that a *StaleError names. Set, HSet and Del of the Access are refused with [ErrInvalid]; a
// script given to [Access.Run] must not write.
//
// What readers leave is a third key, redlatch:{tag}:guard-shared:key. A client of a version that does not know it may
// use the same guards, with Open for readers as well: then some tokens are refused that need not be, and none is let in
// wrongly.
func (r Redis) OpenShared(ctx context.Context, key string, token uint64) (*Access, error) {
	a := &Access{redis: r, key: key, token: token, enter: enterSharedLua, guards: []string{guardKey(key), sharedKey(key)}, shared: true}
	return a.open(ctx)
}

// sharedKey names the key beside guardKey that has the largest writer's token while the largest of all tokens is a
// reader's.
func sharedKey(key string) string {
	return "redlatch:{" + hashslot.Tag(key) + "}:guard-shared:" + key
}
