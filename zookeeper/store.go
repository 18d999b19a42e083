package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/ensemble"
	"github.com/redlatch/redlatch/internal/hook"
	"github.com/redlatch/redlatch/internal/vote"
)

// store keeps the locks of one client in an ensemble.
type store struct {
	*session
	ensemble.OneVote
	name, root string
	user       string // with the password; "" for none, or once the session has it
	acl        []zk.ACL
	// tell tells the client that callers may go on.
	tell func(key string)

	leases   *ensemble.Leases
	observed *observations
	watches  ensemble.Watches

	// base is added to each token, and mark is the node that was made together with the root that has
	// this base, "" where there is none. Both are set before the session is prepared.
	base uint64
	mark string
}

var _ hook.Store = (*store)(nil)

func newStore(config redlatch.Config, e Ensemble, changed func(key string)) *store {
	s := &store{
		name: e.name(), root: e.Root, acl: zk.WorldACL(zk.PermAll), tell: changed,
		leases: ensemble.NewLeases(), observed: newObservations(),
	}
	if e.User != "" {
		s.user, s.acl = e.User+":"+e.Password, zk.AuthACL(zk.PermAll)
	}
	logger := config.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	s.session = newSession(2*config.MaxTTL, e, config.TLS, debugLog{logger}, s.notice, s.prepareRoot)
	s.session.start()
	return s
}

// debugLog is the transport's log.
type debugLog struct{ *slog.Logger }

func (l debugLog) Printf(format string, args ...any) {
	l.Debug("zookeeper: " + strings.TrimPrefix(fmt.Sprintf(format, args...), "zk: "))
}

// notice is called with the paths of nodes that have changed.
func (s *store) notice(path string) {
	s.watches.Over(path)
	if path == "" {
		s.tell("")
	} else if key, ok := keyOf(s.root, path); ok {
		s.tell(key)
	}
}

func (s *store) Name() string { return s.name }

// Connect implements hook.Store: it waits for a session that was prepared, two seconds at most.
func (s *store) Connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return s.await(ctx)
}

func (s *store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unfit
}

func (s *store) Reached() bool { return s.isPrepared() }

func (s *store) Unreachable() bool { return !s.isConnected() }

func (s *store) Cut() { s.cut() }

// Close ends the session, and with it all that this client has left. If there is a lock that must
// be kept, it leaves the session alone: the servers then keep it until it has timed out.
func (s *store) Close() { s.close(s.leases.Any()) }

// format begins the root's data; the base of the tokens follows.
const format = "redlatch locks 1 "

// baseMargin is added to the wall clock to make the base, which must be larger than the tokens that
// Redis servers give out by their clocks. Programs that move here take both locks for a while, with the
// tokens of Redis, so these may be of long after the base was made.
const baseMargin = 10 * 365 * 24 * time.Hour

// prepareRoot authenticates this client, and finds or makes the root. Its requests end with the
// connection.
func (s *store) prepareRoot() error {
	if s.user != "" {
		if err := s.conn.AddAuth("digest", []byte(s.user)); err != nil {
			return err
		}
		s.user = ""
	}
	for i := 1; i <= len(s.root); i++ {
		if i < len(s.root) && s.root[i] != '/' {
			continue
		}
		path := s.root[:i]
		ops := []any{&zk.CreateRequest{Path: path, Acl: s.acl}}
		if path == s.root {
			base := time.Now().Add(baseMargin).UnixMicro()
			ops[0] = &zk.CreateRequest{Path: path, Data: strconv.AppendInt([]byte(format), base, 10), Acl: s.acl}
			ops = append(ops, &zk.CreateRequest{Path: markOf(s.root, uint64(base)), Acl: s.acl})
		}
		_, err := s.conn.Multi(ops...)
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			exists, _, existsErr := s.conn.Exists(path)
			if existsErr != nil || !exists { // this client need not be permitted to make one that is there
				return fmt.Errorf("create %s: %w", path, err)
			}
		}
	}
	data, _, err := s.conn.Get(s.root)
	if err != nil {
		return fmt.Errorf("read %s: %w", s.root, err)
	}
	if s.base, err = baseOf(s.root, data); err != nil {
		s.spoil(err)
		return err
	}
	mark := markOf(s.root, s.base)
	marked, _, err := s.conn.Exists(mark)
	if marked {
		s.mark = mark
	}
	return err
}

// baseOf reads the base of the tokens from the root's data.
func baseOf(root string, data []byte) (uint64, error) {
	digits, ok := strings.CutPrefix(string(data), format)
	base, err := strconv.ParseUint(digits, 10, 53)
	if !ok || err != nil {
		return 0, fmt.Errorf("Ensemble.Root: the node %s is something else's, as its data is %.40q: use another path, which this library makes", root, data)
	}
	return base, nil
}

// maxToken bounds tokens, as everywhere in this library.
const maxToken = 1 << 53

// blockBits sets for how many callers in turn a transaction has tokens.
const blockBits = 3

// token returns the token of the last of more+1 callers who hold in turn by the transaction zxid.
// Tokens of two transactions differ by a whole block.
func (s *store) token(zxid int64, more uint64) (uint64, error) {
	if more >= 1<<blockBits || zxid <= 0 || uint64(zxid) >= (maxToken-s.base)>>blockBits {
		return 0, fmt.Errorf("the transaction %#x makes no token for %d: the ensemble has had too many elections, or the base of %s is wrong", zxid, more+1, s.root)
	}
	return s.base + uint64(zxid)<<blockBits + more, nil
}

// answer converts an error to an Answer, which says whether the request was executed.
func answer(err error) vote.Answer {
	a := vote.Answer{Err: err}
	switch {
	case errors.Is(err, errNotConnected), errors.Is(err, ensemble.ErrBusy), errors.Is(err, zk.ErrNoServer):
		a.Verdict = vote.NotSent
	case errors.Is(err, zk.ErrSessionExpired):
		// What the request left, if anything, has ended with the session.
		a.Verdict = vote.Unavailable
		// A follower, unlike a leader, has a local session end.
		a.Err = fmt.Errorf("%w; if that is so at each try: %s", err, localSessions)
	case errors.Is(err, zk.ErrSessionMoved), errors.Is(err, errStale):
		a.Verdict = vote.Unavailable
	case err != nil && err.Error() == errLocalSession:
		a.Verdict = vote.Refused
		a.Err = fmt.Errorf("%w: %s", err, localSessions)
	case err != nil && err.Error() == errQuota:
		a.Verdict = vote.Unavailable
		a.Err = fmt.Errorf("%w: the quota of Ensemble.Root, or of a node above it, is used up: raise it by setquota, or use another Root", err)
	case errors.Is(err, zk.ErrNoAuth):
		a.Verdict = vote.Refused
		a.Err = fmt.Errorf("%w: give the Ensemble.User and Password for whom the nodes were made, or use another Root", err)
	case errors.Is(err, zk.ErrAuthFailed), errors.Is(err, zk.ErrInvalidACL), errors.Is(err, zk.ErrBadArguments),
		errors.Is(err, zk.ErrAPIError), errors.Is(err, zk.ErrNoChildrenForEphemerals), errors.Is(err, errForeign):
		a.Verdict = vote.Refused
	}
	return a
}

const (
	// What the transport says for EPHEMERALONLOCALSESSION and QUOTAEXCEEDED, which it does not know.
	errLocalSession = "unknown error: -120"
	errQuota        = "unknown error: -125"
	localSessions   = "servers with localSessionsEnabled need localSessionsUpgradingEnabled=true, too: set it in their configuration"
)

// errForeign: somebody else has changed what this library keeps.
var errForeign = errors.New("not this library's")

// errStale: what is written now might end with the session before its time.
var errStale = errors.New("this client was not heard for long, and its session is being confirmed")
