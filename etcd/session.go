package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/ensemble"
	"github.com/redlatch/redlatch/internal/quorum"
)

// session is this client's etcd lease. Its end deletes what the client has left. Only those who did
// not watch rely on that.
type session struct {
	client *clientv3.Client
	// asked is how long the etcd lease must last at least.
	asked   time.Duration
	prepare func(ctx context.Context) error
	// probe reads something, as a majority has it, and returns the term of the answer.
	probe func(ctx context.Context) (term uint64, err error)

	// life ends when the client is closed.
	life context.Context
	end  context.CancelFunc
	// background is what Close waits for.
	background sync.WaitGroup
	// releases are for those under way.
	releases ensemble.Slots

	mu     sync.Mutex // guards what follows; nothing is called while it is held
	closed bool
	// news is closed and replaced when one of the following has changed.
	news chan struct{}
	// id is the etcd lease, 0 for none. It was renewed at renewed, or later, to last for lasts.
	id      clientv3.LeaseID
	renewed clock.Instant
	lasts   time.Duration
	// prepared: there was an etcd lease once. answered: the last question was answered; failure is why it
	// was not. refusal is why there is no etcd lease yet, and unfit why there never will be.
	prepared, answered      bool
	failure, refusal, unfit error
	// cluster is the id of the cluster that answered first, 0 before that.
	cluster uint64
}

// heartbeats is how many renewals are sent while the etcd lease lasts.
const heartbeats = 16

var (
	errNotConnected = errors.New("no member has answered yet")
	errNoLease      = errors.New("the cluster gives no etcd lease")
	errNoAnswer     = errors.New("no answer in time")
	errClosed       = errors.New("the client is closed")
	// errClientClosed: no step can be sent any more.
	errClientClosed = errors.New("the program has closed its etcd client: close the *redlatch.Client first")
	// errClusters: two clients could hold one lock, each in another cluster.
	errClusters = errors.New("Cluster.Endpoints: two clusters answer: name the members of one; if it was restored or made anew, open the client anew")
)

// run runs f in the background, unless the client is closed.
func (s *session) run(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.background.Go(f)
	return true
}

// rest pauses before a request in the background is made again. It reports false when the client's
// life has ended.
func (s *session) rest() bool { return s.pause(20 * time.Millisecond) }

func (s *session) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.life.Done():
		return false
	}
}

// attend makes the etcd lease and keeps it alive, until the client is closed.
func (s *session) attend() {
	period := s.asked / heartbeats
	for {
		began, had := clock.System.Now(), s.native() != 0
		ctx, cancel := context.WithTimeout(s.life, max(period, stepTime))
		var err error
		if !had {
			err = s.begin(ctx)
		} else {
			err = s.renew(ctx)
		}
		cancel()
		s.note(err)
		wait := period - clock.System.Now().Since(began)
		switch has := s.native() != 0; {
		case !has && (had || err == nil): // it is lost
			wait = 0
		case !has, err != nil: // calls wait for it, or it is not known whether the servers answer
			wait = min(wait, time.Second)
		}
		s.mu.Lock()
		news := s.news
		s.mu.Unlock()
		timer := time.NewTimer(max(wait, 20*time.Millisecond))
		select {
		case <-timer.C:
		case <-news: // it may be lost
		case <-s.life.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// begin prepares the prefix and makes an etcd lease.
func (s *session) begin(ctx context.Context) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	sent := clock.System.Now()
	r, err := s.client.Grant(ctx, int64((s.asked+time.Second-1)/time.Second))
	if err == nil {
		err = s.hear(r.ResponseHeader)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.renewed, s.lasts, s.prepared = r.ID, sent, time.Duration(r.TTL)*time.Second, true
	s.announce()
	return nil
}

// rule: renewal-in-one-term

// renew makes the etcd lease last longer. A leader renews it by itself, even one that has been
// replaced and does not know it. If a majority answers in the same term, the leader had not been
// replaced.
func (s *session) renew(ctx context.Context) error {
	id, sent := s.native(), clock.System.Now()
	r, err := s.client.KeepAliveOnce(ctx, id)
	if err != nil {
		s.lost(id, err)
		return err
	}
	if err := s.hear(r.ResponseHeader); err != nil {
		return err
	}
	term, err := s.probe(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id == id && term == r.RaftTerm {
		s.renewed, s.lasts = sent, time.Duration(r.TTL)*time.Second
	}
	return nil
}

// hear takes in which cluster an answer is of. If it is another than before, nothing is granted any more.
// A lock is written under an etcd lease, which is in one cluster only: so it suffices to look at the
// answers that are about that, and at those about the prefix.
func (s *session) hear(h *pb.ResponseHeader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster = cmp.Or(s.cluster, h.GetClusterId())
	if id := h.GetClusterId(); id == 0 || id == s.cluster {
		return nil
	}
	s.id, s.unfit = 0, cmp.Or(s.unfit, errClusters)
	s.announce()
	return s.unfit
}

// note takes in what came of a question.
func (s *session) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered, s.failure = err == nil, err
	if s.prepared {
		return
	}
	s.refusal = nil
	if refuses(err) {
		s.refusal = err
	}
	s.announce()
}

// lost notes that the etcd lease id has ended, if err says so. Then another is made.
func (s *session) lost(id clientv3.LeaseID, err error) {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		s.replace(id)
	}
}

// replace has another etcd lease made, and id end by itself. Locks are put under the new one when they are extended.
func (s *session) replace(id clientv3.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id == id {
		s.id = 0
		s.announce()
	}
}

// announce tells those who wait that something has changed. The caller holds s.mu.
func (s *session) announce() {
	close(s.news)
	s.news = make(chan struct{})
}

// leased returns the etcd lease to write under, or an error: what is written without one stays for ever.
func (s *session) leased() (clientv3.LeaseID, error) {
	id := s.native()
	if id == 0 {
		return 0, errNotConnected
	}
	return id, nil
}

// native returns the etcd lease, or 0.
func (s *session) native() clientv3.LeaseID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// spoil makes every later call for a lock fail, because of err.
func (s *session) spoil(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unfit == nil {
		s.unfit = err
	}
}

// await waits until there is an etcd lease, or for ctx, or for a refusal.
func (s *session) await(ctx context.Context) error {
	for {
		s.mu.Lock()
		there, why, news := s.id != 0, cmp.Or(s.unfit, s.refusal), s.news
		s.mu.Unlock()
		switch {
		case s.life.Err() != nil:
			return errNotConnected
		case s.client.Ctx().Err() != nil:
			return errClientClosed
		case there:
			return nil
		case why != nil:
			return why
		}
		select {
		case <-news:
		case <-s.client.Ctx().Done():
		case <-ctx.Done():
			return s.notConnected()
		case <-s.life.Done():
			return errNotConnected
		}
	}
}

// notConnected returns why there is no etcd lease: errNoLease with what a server has said, or errNotConnected
// with what is known of the reason. The client of etcd says only that a request took too long. Its connection
// tells why: where it could not connect, it sends nothing.
func (s *session) notConnected() error {
	s.mu.Lock()
	failure := s.failure
	s.mu.Unlock()
	if _, ok := errors.AsType[rpctypes.EtcdError](failure); ok {
		return fmt.Errorf("%w: %w", errNoLease, failure)
	}
	conn := s.client.ActiveConnection()
	if conn.GetState() != connectivity.TransientFailure {
		return errNotConnected
	}
	ctx, cancel := context.WithTimeout(s.life, 100*time.Millisecond) // it may connect just now
	defer cancel()
	if why := whyNot(ctx, conn); why != "" {
		return fmt.Errorf("%w: %s", errNotConnected, why)
	}
	return errNotConnected
}

// rule: session-outlasts-lease

// outlasting returns the etcd lease, and whether it is known to last until d from now.
func (s *session) outlasting(now clock.Instant, d time.Duration) (clientv3.LeaseID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id, s.id != 0 && now.Until(s.renewed.Add(s.lasts-quorum.Drift(s.lasts))) >= d
}

// close ends the etcd lease, unless it must be kept, and waits for all that is under way.
func (s *session) close(keep bool) {
	s.mu.Lock()
	s.closed = true
	id, answered := s.id, s.answered && s.life.Err() == nil
	s.mu.Unlock()
	s.end()
	s.background.Wait()
	if keep || id == 0 || !answered {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stepTime)
	defer cancel()
	s.client.Revoke(ctx, id) // or it ends by itself
}
