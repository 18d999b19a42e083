package etcd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/vote"
)

// renewer is a leader that renews etcd leases by itself, in a term.
type renewer struct {
	clientv3.Lease
	term, cluster uint64
	err           error
}

func (r renewer) KeepAliveOnce(_ context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	header := &etcdserverpb.ResponseHeader{RaftTerm: r.term, ClusterId: r.cluster}
	return &clientv3.LeaseKeepAliveResponse{ResponseHeader: header, ID: id, TTL: 20}, r.err
}

// A renewal counts if a majority answers in the same term, and not if a leader was elected meanwhile.
func TestRenewalInOneTerm(t *testing.T) {
	t.Parallel()
	errProbe := errors.New("no majority")
	for name, tt := range map[string]struct {
		renewed, answered uint64
		probe             error
		want              bool
	}{
		"one term":           {renewed: 7, answered: 7, want: true},
		"a new leader":       {renewed: 7, answered: 8},
		"a member behind":    {renewed: 8, answered: 7},
		"a majority is away": {renewed: 7, answered: 7, probe: errProbe},
	} {
		start := clock.System.Now()
		s := &session{
			client: &clientv3.Client{Lease: renewer{term: tt.renewed}}, id: 1, lasts: 20 * time.Second,
			probe: func(context.Context) (uint64, error) { return tt.answered, tt.probe },
		}
		s.renewed = start.Add(-15 * time.Second)
		if _, ok := s.outlasting(start, 10*time.Second); ok {
			t.Errorf("%s: it lasts before it is renewed", name)
		}
		if err := s.renew(t.Context()); !errors.Is(err, tt.probe) {
			t.Errorf("%s: %v", name, err)
		}
		if _, ok := s.outlasting(start, 10*time.Second); ok != tt.want {
			t.Errorf("%s: it outlasts the TTL: %v", name, ok)
		}
	}
}

// A renewal that another cluster answers ends the etcd lease and all grants.
func TestRenewalInAnotherCluster(t *testing.T) {
	t.Parallel()
	client := clientv3.NewCtxClient(t.Context())
	client.Lease = renewer{term: 7, cluster: 2}
	s := &session{
		client: client, id: 1, cluster: 1, news: make(chan struct{}), life: t.Context(),
		probe: func(context.Context) (uint64, error) { return 7, nil },
	}
	if err := s.renew(t.Context()); !errors.Is(err, errClusters) {
		t.Errorf("renew: %v", err)
	}
	if err := s.await(t.Context()); !errors.Is(err, errClusters) || answer(err).Verdict != vote.Refused {
		t.Errorf("a call: %v", err)
	}
}

// Nothing is written under an etcd lease that might end too soon.
func TestNothingIsWrittenUnderAStaleLease(t *testing.T) {
	t.Parallel()
	// With a way to no server.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &store{session: &session{client: clientv3.NewCtxClient(ctx), id: 1, life: ctx, lasts: 20 * time.Second, renewed: clock.System.Now().Add(-19500 * time.Millisecond)}}
	w := &acquisition{store: s, request: vote.Acquire{Key: "name", ID: "id", TTL: time.Second}}
	if a, again := w.commit(ctx, contents{}); a.Verdict != vote.Unavailable || again {
		t.Errorf("acquire: %v, %v", a, again)
	}
	if a := s.Extend(ctx, vote.Extend{Key: "name", ID: "id", TTL: time.Second}); a.Verdict != vote.Unavailable {
		t.Errorf("extend: %v", a)
	}
}

// granter is an etcd that has no lease, and gives none.
type granter struct {
	renewer
	asked chan struct{}
}

func (g granter) Grant(context.Context, int64) (*clientv3.LeaseGrantResponse, error) {
	g.asked <- struct{}{}
	return nil, errors.New("no quorum")
}

// An etcd lease that a renewal finds lost is made anew at once, and again soon if that fails, however seldom
// it is renewed.
func TestLostLeaseIsMadeAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(t.Context())
		g := granter{renewer{err: rpctypes.ErrLeaseNotFound}, make(chan struct{})}
		s := &session{
			client: &clientv3.Client{Lease: g}, id: 1, asked: time.Hour, life: life, news: make(chan struct{}),
			prepare: func(context.Context) error { return nil }, prepared: true,
		}
		start := time.Now()
		go s.attend()
		for range 3 {
			<-g.asked
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("a lease was asked for three times in %v", took)
		}
		end()
		synctest.Wait()
	})
}

// A renewal that fails is soon made again, however seldom the etcd lease is renewed: until then the servers pass for
// unreachable, and Close would leave the etcd lease behind.
func TestFailedRenewalIsMadeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(t.Context())
		probes := 0
		s := &session{
			client: &clientv3.Client{Lease: renewer{}}, id: 1, asked: time.Hour, life: life, news: make(chan struct{}), prepared: true,
			probe: func(context.Context) (uint64, error) {
				if probes++; probes == 1 {
					return 0, errors.New("no majority")
				}
				return 0, nil
			},
		}
		go s.attend()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		s.mu.Lock()
		if !s.answered || probes != 2 {
			t.Errorf("answered: %v, after %d renewals", s.answered, probes)
		}
		s.mu.Unlock()
		end()
		synctest.Wait()
	})
}

// Without an etcd lease nothing is written that would then stay for ever.
func TestNothingIsWrittenWithoutALease(t *testing.T) {
	t.Parallel()
	s := &store{session: &session{}} // which has no client to write by
	if err := s.join(t.Context(), placeOf("p", "key"), "name", contents{}); !errors.Is(err, errNotConnected) {
		t.Errorf("join: %v", err)
	}
	if err := s.leave(t.Context(), placeOf("p", "key"), "name"); !errors.Is(err, errNotConnected) {
		t.Errorf("leave: %v", err)
	}
}

// unanswered is a server that answers no transaction.
type unanswered struct{ clientv3.KV }

func (unanswered) Txn(context.Context) clientv3.Txn { return noAnswer{} }

type noAnswer struct{ clientv3.Txn }

func (n noAnswer) Then(...clientv3.Op) clientv3.Txn     { return n }
func (noAnswer) Commit() (*clientv3.TxnResponse, error) { return nil, context.DeadlineExceeded }

// Where no look is answered no place was asked for, and there is none to give up: an outage leaves no goroutine for
// each time that a waiter asks.
func TestUnansweredLookAsksForNoPlace(t *testing.T) {
	t.Parallel()
	client := clientv3.NewCtxClient(t.Context())
	client.KV = unanswered{}
	s := &store{session: &session{client: client, id: 1, life: t.Context()}}
	if p := s.Enqueue(t.Context(), vote.Enqueue{Key: "key", Ticket: vote.Ticket{Waiter: "w"}}); p.Verdict != vote.Unavailable || p.Err == nil {
		t.Errorf("%v, %v", p.Verdict, p.Err)
	}
}

// That a step was given up does not look as if the caller had cancelled.
func TestNoAnswerIsNoCancellation(t *testing.T) {
	t.Parallel()
	for _, err := range []error{context.Canceled, context.DeadlineExceeded} {
		if a := answer(err); a.Verdict != vote.Unknown || errors.Is(a.Err, err) || a.Err == nil {
			t.Errorf("%v: %v, %v", err, a.Verdict, a.Err)
		}
	}
}

// A learner executes nothing: the next member is asked, and where there is none, the error says what to do.
func TestLearner(t *testing.T) {
	t.Parallel()
	for learners, want := range map[int]error{0: nil, 1: nil, 100: rpctypes.ErrGRPCNotSupportedForLearner} {
		asked := 0
		invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
			if asked++; asked <= learners {
				return rpctypes.ErrGRPCNotSupportedForLearner
			}
			return nil
		}
		if err := passLearners(t.Context(), "", nil, nil, nil, invoke); err != want || asked > 10 {
			t.Errorf("%d learners: %v, after %d requests", learners, err, asked)
		}
	}
	if a := answer(errLearner); a.Verdict != vote.Unavailable || !strings.Contains(a.Err.Error(), "promote") {
		t.Errorf("%v: %v", a.Verdict, a.Err)
	}
}

func TestTokensGrow(t *testing.T) {
	t.Parallel()
	s := &store{base: 1 << 50}
	last := uint64(0)
	for _, revision := range []int64{1, 2, 3, 1 << 32, 1<<32 + 1, 1 << 40} {
		first, err := s.token(revision, 0)
		if err != nil || first <= last {
			t.Errorf("%d: the token %d after %d, %v", revision, first, last, err)
		}
		if last, err = s.token(revision, 7); err != nil || last != first+7 {
			t.Errorf("%d: %d, %v", revision, last, err)
		}
	}
	if token, err := s.token(1, 8); err == nil {
		t.Errorf("the ninth of a block has the token %d, as the first of the next", token)
	}
	for _, revision := range []int64{0, -1, 1 << 50, 1<<63 - 1} {
		if token, err := s.token(revision, 0); err == nil {
			t.Errorf("%d has the token %d", revision, token)
		}
	}
}

// teller is a watcher that says what it is to say.
type teller struct {
	clientv3.Watcher
	says chan clientv3.WatchResponse
}

func (w teller) Watch(_ context.Context, _ string, options ...clientv3.OpOption) clientv3.WatchChan {
	if clientv3.OpGet("", options...).Rev() != 0 {
		close(w.says) // servers are slow to tell of what was before
	}
	return w.says
}

// written is a server on which a key was last written at a revision, or is not there if that is 0.
type written struct {
	clientv3.KV
	at  int64
	err error
}

func (w written) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	r := &clientv3.GetResponse{}
	if w.at != 0 {
		r.Kvs = []*mvccpb.KeyValue{{ModRevision: w.at}}
	}
	return r, w.err
}

// A watch is over at once where the key was changed between the look and the watch: it may be one that
// never changes again.
func TestChangeBeforeTheWatch(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		began   int64
		now     written
		atOnce  bool
		changed bool
	}{
		"nothing since":    {began: 7, now: written{at: 5}, changed: true},
		"other keys since": {began: 8, now: written{at: 5}, changed: true},
		"written since":    {began: 8, now: written{at: 8}, atOnce: true, changed: true},
		"deleted since":    {began: 8, atOnce: true, changed: true},
		"no answer":        {began: 8, now: written{err: context.DeadlineExceeded}, atOnce: true},
	} {
		watcher := teller{says: make(chan clientv3.WatchResponse, 2)}
		s := &store{session: &session{client: &clientv3.Client{Watcher: watcher, KV: tt.now}, life: t.Context()}}
		watcher.says <- clientv3.WatchResponse{Created: true, Header: &etcdserverpb.ResponseHeader{Revision: tt.began}}
		watcher.says <- clientv3.WatchResponse{Events: []*clientv3.Event{{}}}
		changed := s.awaitChange(t.Context(), sight{key: "key", written: 5, revision: 7})
		if atOnce := len(watcher.says) == 1; changed != tt.changed || atOnce != tt.atOnce {
			t.Errorf("%s: %t, at once: %t", name, changed, atOnce)
		}
	}
}

func TestDefects(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"3.3.27": true, "3.4.0": false, "3.4.23": false, "3.5.0": true, "3.5.2": true, "3.5.3": false, "3.5.21": false, "3.6.0-rc.1": false, "3.7.3": false, "4.0.0": false,
	} {
		if defect, remedy := defectOf(version); (defect != "") != want || (remedy != "") != want {
			t.Errorf("%s: %q, %q", version, defect, remedy)
		}
	}
}

// A cluster that answers and does not tell of its alarms is not said to be well.
func TestExamineWithoutAlarms(t *testing.T) {
	t.Parallel()
	x := &examination{unheard: context.DeadlineExceeded}
	x.judge()
	if p := x.report.Problems; len(p) != 1 || p[0].Unusable || !strings.Contains(p[0].Text, "alarms") {
		t.Errorf("%+v", p)
	}
	x = &examination{why: errNoAnswer, unheard: context.DeadlineExceeded}
	x.judge()
	if p := x.report.Problems; len(p) != 1 || !strings.Contains(p[0].Text, "no majority") {
		t.Errorf("nothing answers: %+v", p)
	}
}

// keeping is a server with a lock that is under the etcd lease 1. It counts how often that is deleted.
type keeping struct {
	clientv3.KV
	deleted int
}

func (k *keeping) Txn(context.Context) clientv3.Txn { return &transaction{of: k} }

type transaction struct {
	clientv3.Txn
	of   *keeping
	then []clientv3.Op
}

func (t *transaction) If(...clientv3.Cmp) clientv3.Txn { return t }

func (t *transaction) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then = ops
	return t
}

func (t *transaction) Commit() (*clientv3.TxnResponse, error) {
	r := &clientv3.TxnResponse{Header: &etcdserverpb.ResponseHeader{Revision: 8}, Succeeded: true}
	if t.then[0].IsDelete() {
		t.of.deleted++
		return r, nil
	}
	for _, kvs := range [][]*mvccpb.KeyValue{{{Value: []byte("id"), ModRevision: 7, Lease: 1}}, {{Value: []byte("1000"), ModRevision: 7}}, nil, nil} {
		found := &etcdserverpb.RangeResponse{Kvs: kvs}
		r.Responses = append(r.Responses, &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: found}})
	}
	return r, nil
}

// A detached lock whose time is over is deleted as it was found, unless it was extended before it was looked at.
func TestExtendedLockIsNotExpired(t *testing.T) {
	t.Parallel()
	for _, over := range []bool{true, false} {
		k := &keeping{}
		client := clientv3.NewCtxClient(t.Context())
		client.KV = k
		s := &store{session: &session{client: client, id: 1, life: t.Context(), news: make(chan struct{})}}
		ended := s.expire("key", "id", func() bool { return over })
		if ended != over || (k.deleted == 1) != over {
			t.Errorf("its time is over %t: ended %t, deleted %d times", over, ended, k.deleted)
		}
	}
}
