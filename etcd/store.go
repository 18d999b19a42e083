package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/ensemble"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/vote"
)

// store keeps the locks of one client in a cluster.
type store struct {
	*session
	ensemble.OneVote
	name, prefix string
	// tell tells the client that callers may go on.
	tell func(key string)
	// owned: the client was made here, and must be closed here.
	owned bool

	leases   *ensemble.Leases
	observed *observations
	guesses  guesses
	watches  ensemble.Watches
	// stream is the number of the stream that watches share: there is another after a failure.
	stream atomic.Int64

	// base is added to each token, and root is the revision at which the base was stored. Both are
	// set before there is an etcd lease.
	base uint64
	root int64
}

var _ hook.Store = (*store)(nil)

func newStore(config redlatch.Config, client *clientv3.Client, owned bool, prefix string, changed func(key string)) *store {
	s := &store{
		name: nameOf(client, prefix), prefix: prefix, tell: changed, owned: owned,
		leases: ensemble.NewLeases(), observed: newObservations(), guesses: guesses{wrong: make(map[place]bool)},
	}
	s.session = &session{client: client, asked: 2*config.MaxTTL + 2*time.Second, prepare: s.prepareRoot, probe: s.readTerm, news: make(chan struct{}), releases: make(ensemble.Slots, ensemble.MaxInFlight)}
	s.life, s.end = context.WithCancel(context.Background())
	s.run(s.attend)
	return s
}

func nameOf(client *clientv3.Client, prefix string) string {
	return strings.Join(client.Endpoints(), ",") + prefix
}

func (s *store) Name() string { return s.name }

// Connect implements hook.Store: it waits for an etcd lease, two seconds at most.
func (s *store) Connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	return s.await(ctx)
}

func (s *store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unfit
}

func (s *store) Reached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.prepared
}

func (s *store) Unreachable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.answered
}

// Cut makes sure that nothing more is sent: what was written stays until the etcd lease has ended.
func (s *store) Cut() { s.end() }

// Close ends the etcd lease, and with it all that this client has left. If there is a lock that
// must be kept, it leaves the etcd lease alone, which then ends by itself.
func (s *store) Close() {
	s.close(s.leases.Any())
	if s.owned {
		s.client.Close()
	}
}

// format begins the value of the prefix; the base of the tokens follows.
const format = "redlatch locks 1 "

// baseMargin is added to the wall clock to make the base, which must be larger than the tokens that
// Redis servers give out by their clocks. Programs that move here take both locks for a while, with the
// tokens of Redis, so these may be of long after the base was made.
const baseMargin = 10 * 365 * 24 * time.Hour

// prepareRoot finds the key of the prefix, or makes it where nothing is under the prefix.
func (s *store) prepareRoot(ctx context.Context) error {
	s.mu.Lock()
	made := s.root != 0
	s.mu.Unlock()
	if made {
		return nil
	}
	value := format + strconv.FormatInt(time.Now().Add(baseMargin).UnixMicro(), 10)
	r, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(s.prefix), "=", 0), clientv3.Compare(clientv3.CreateRevision(s.prefix+"/"), "=", 0).WithPrefix()).
		Then(clientv3.OpPut(s.prefix, value)).Else(s.readRoot()).Commit()
	if err == nil {
		err = s.hear(r.Header)
	}
	if err != nil {
		return err
	}
	revision := r.Header.Revision
	if !r.Succeeded {
		kv := one(r, 0)
		if kv == nil {
			return s.foreign("there are keys under %s, which this library has not made", s.prefix)
		}
		value, revision = string(kv.Value), kv.CreateRevision
	}
	base, err := baseOf(s.prefix, value)
	if err != nil {
		s.spoil(err)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base, s.root = base, revision
	return nil
}

// baseOf reads the base of the tokens from the prefix's value.
func baseOf(prefix, value string) (uint64, error) {
	digits, ok := strings.CutPrefix(value, format)
	base, err := strconv.ParseUint(digits, 10, 53)
	if !ok || err != nil {
		return 0, fmt.Errorf("Cluster.Prefix: the key %s is something else's, as its value is %.40q: use another prefix", prefix, value)
	}
	return base, nil
}

func (s *store) foreign(format string, args ...any) error {
	err := fmt.Errorf("Cluster.Prefix: "+format+": use another prefix", args...)
	s.spoil(err)
	return err
}

func (s *store) readRoot() clientv3.Op { return clientv3.OpGet(s.prefix) }

// ours returns the condition that the prefix is as this client found it.
func (s *store) ours() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(s.prefix), "=", s.root)
}

// checkRoot returns an error if a failed transaction, whose operation i is readRoot, failed because
// the prefix is not as it was.
func (s *store) checkRoot(r *clientv3.TxnResponse, i int) error {
	if kv := one(r, i); kv == nil || kv.CreateRevision != s.root {
		return fmt.Errorf("%s is not as it was, %w: open the client anew", s.prefix, errForeign)
	}
	return nil
}

func (s *store) readTerm(ctx context.Context) (uint64, error) {
	r, err := s.client.Get(ctx, s.prefix)
	if err == nil {
		err = s.hear(r.Header)
	}
	if err != nil {
		return 0, err
	}
	return r.Header.RaftTerm, nil
}

// maxToken bounds tokens, as everywhere in this library.
const maxToken = 1 << 53

// blockBits sets for how many callers in turn a transaction has tokens.
const blockBits = 3

// token returns the token of the last of more+1 callers who hold in turn by the transaction at a
// revision. Tokens of two transactions differ by a whole block.
func (s *store) token(revision int64, more uint64) (uint64, error) {
	if revision <= 0 || more >= 1<<blockBits || uint64(revision) >= (maxToken-s.base)>>blockBits {
		return 0, fmt.Errorf("the revision %d makes no token: the base of %s is wrong", revision, s.prefix)
	}
	return s.base + uint64(revision)<<blockBits + more, nil
}

// answer converts an error to an Answer, which says whether the request was executed.
func answer(err error) vote.Answer {
	a := vote.Answer{Err: err}
	switch {
	case errors.Is(err, errNotConnected), errors.Is(err, errClosed), errors.Is(err, ensemble.ErrBusy):
		a.Verdict = vote.NotSent
	case errors.Is(err, rpctypes.ErrNoSpace):
		a.Verdict = vote.Unavailable
		a.Err = fmt.Errorf("%w: compact and defragment it or raise --quota-backend-bytes, and disarm the alarm", err)
	case errors.Is(err, errLearner):
		a.Verdict = vote.Unavailable
		a.Err = fmt.Errorf("%w: promote it, or name another member in Cluster.Endpoints", err)
	case errors.Is(err, errStale), errors.Is(err, errConflict), errors.Is(err, rpctypes.ErrLeaseNotFound),
		errors.Is(err, rpctypes.ErrTooManyRequests), errors.Is(err, rpctypes.ErrNoLeader):
		a.Verdict = vote.Unavailable
	case errors.Is(err, rpctypes.ErrUserEmpty):
		a.Verdict = vote.Refused
		a.Err = fmt.Errorf("%w: give Cluster.User and Password, or a client that has a user", err)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		a.Verdict = vote.Refused
		a.Err = fmt.Errorf("%w: grant a role of Cluster.User readwrite on Cluster.Prefix and all that begins with it", err)
	case refuses(err):
		a.Verdict = vote.Refused
	case errors.Is(err, errNoLease): // after what a server has said, which it may wrap
		a.Verdict = vote.NotSent
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		a.Err = errNoAnswer // the step's context has ended, and not the caller's, as errors.Is would have it
	}
	return a
}

// refuses reports whether a server, or this package, will not do it however long one waits.
func refuses(err error) bool {
	for _, why := range []error{
		errForeign, errClusters, errClientClosed, rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed, rpctypes.ErrUserNotFound,
		rpctypes.ErrInvalidAuthMgmt, rpctypes.ErrTooManyOps, rpctypes.ErrRequestTooLarge,
	} {
		if errors.Is(err, why) {
			return true
		}
	}
	return false
}

// errForeign: somebody else has changed what this library keeps.
var errForeign = errors.New("not this library's")

// errStale: what is written now might end with the etcd lease before its time.
var errStale = errors.New("this client was not heard for long, and its etcd lease is being confirmed")
