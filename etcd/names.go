package etcd

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Each lock has keys under the prefix, all under the etcd leases of those who wrote them:
//
//	held         the holder id; a grant writes it, which gives it its revision, and so does an
//	             extension that puts it under another etcd lease
//	lease        the TTL; each extension writes it, too
//	gate/LEASE   written by a client that gives up an attempt that may still be executed, or sends it
//	             again: then it is not. Each client has its own, as another's ends sooner than the
//	             attempt's etcd lease
//	wait/WAITER  a place in the wait queue
//
// held and the lease are made and deleted in one transaction.
const (
	lockPrefix = "/lock/"
	waitPrefix = "/wait/"
)

// place is the text that the keys of a lock begin with.
type place string

func placeOf(prefix, key string) place { return place(prefix + lockPrefix + url.QueryEscape(key)) }

func (p place) held() string            { return string(p) + "/held" }
func (p place) lease() string           { return string(p) + "/lease" }
func (p place) gates() string           { return string(p) + "/gate" }
func (p place) wait(name string) string { return p.waits() + url.QueryEscape(name) }
func (p place) waits() string           { return string(p) + waitPrefix }

// waiter is a place in a wait queue.
type waiter struct {
	name, key string
	// number is the revision at which the place was made.
	number int64
}

// contents are what a lock's keys contain, at a revision.
type contents struct {
	revision int64
	// holder is the holder id, "" if there is none. It was written at the revision held, under the
	// etcd lease native.
	holder string
	held   int64
	native clientv3.LeaseID
	// ttl is what the lease was last written with, at the revision lease.
	ttl   time.Duration
	lease int64
	gated bool // some attempt was given up
	// waiters are in their order.
	waiters []waiter
}

// reads returns the operations whose answers parse takes.
func (p place) reads() []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpGet(p.held()), clientv3.OpGet(p.lease()), clientv3.OpGet(p.gates(), clientv3.WithPrefix(), clientv3.WithCountOnly()),
		clientv3.OpGet(p.waits(), clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)),
	}
}

func (p place) parse(r *clientv3.TxnResponse) (contents, error) {
	c := contents{revision: r.Header.Revision}
	if held := one(r, 0); held != nil {
		c.holder, c.held, c.native = string(held.Value), held.ModRevision, clientv3.LeaseID(held.Lease)
	}
	if lease := one(r, 1); lease != nil {
		ms, err := strconv.ParseInt(string(lease.Value), 10, 32)
		if err != nil || ms <= 0 {
			return c, fmt.Errorf("%s has no TTL, %w: delete it when nobody holds the lock", p.lease(), errForeign)
		}
		c.ttl, c.lease = time.Duration(ms)*time.Millisecond, lease.ModRevision
	}
	if (c.holder == "") != (c.lease == 0) {
		return c, fmt.Errorf("%s is there without its other keys, %w: delete all when nobody holds the lock", p, errForeign)
	}
	c.gated = r.Responses[2].GetResponseRange().Count > 0
	for _, kv := range r.Responses[3].GetResponseRange().Kvs {
		if name, err := url.QueryUnescape(strings.TrimPrefix(string(kv.Key), p.waits())); err == nil {
			c.waiters = append(c.waiters, waiter{name: name, key: string(kv.Key), number: kv.CreateRevision})
		}
	}
	return c, nil
}

// one returns the key that operation i has found, or nil.
func one(r *clientv3.TxnResponse, i int) *mvccpb.KeyValue {
	if kvs := r.Responses[i].GetResponseRange().Kvs; len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

// index returns the index of the waiter with that name, or -1.
func (c contents) index(name string) int {
	return slices.IndexFunc(c.waiters, func(w waiter) bool { return w.name == name })
}

// first reports whether the waiter at index own, or -1 for none, need not wait for others in the
// queue.
func (c contents) first(own int) bool { return own == 0 || len(c.waiters) == 0 }

// others reports whether anybody waits besides the waiter at index own, or -1 for none.
func (c contents) others(own int) bool { return len(c.waiters) > 1 || len(c.waiters) == 1 && own < 0 }

// unchanged returns the conditions that the lock's keys are as they were.
func (p place) unchanged(c contents) []clientv3.Cmp {
	return []clientv3.Cmp{at(p.held(), c.held), at(p.lease(), c.lease), p.ungated(c)}
}

// gate is the operation by which a client with that etcd lease gives up an attempt.
func (p place) gate(native clientv3.LeaseID) clientv3.Op {
	return clientv3.OpPut(p.gates()+"/"+strconv.FormatInt(int64(native), 16), "", clientv3.WithLease(native))
}

// ungated returns the condition that no attempt was given up since the contents were read.
func (p place) ungated(c contents) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(p.gates()), "<", c.revision+1).WithPrefix()
}

// nobodyWaits returns the condition that there is no place in the wait queue.
func (p place) nobodyWaits() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(p.waits()), "=", 0).WithPrefix()
}

// at returns the condition that key was last written at the revision, or does not exist if that is
// 0.
func at(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision)
}

// isHolders returns the condition that the lock is held under the id, and isUnder that it is held
// under the etcd lease.
func (p place) isHolders(id string) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(p.held()), "=", id)
}

func (p place) isUnder(native clientv3.LeaseID) clientv3.Cmp {
	return clientv3.Compare(clientv3.LeaseValue(p.held()), "=", native)
}
