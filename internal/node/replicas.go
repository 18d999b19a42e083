package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/script"
)

// Replicas says which acknowledgement a node's votes need to count.
type Replicas struct {
	// Conn is a separate connection to the same server. It is nil when no acknowledgement is asked
	// for, as when a node is only looked at. WAIT holds up what comes behind it on its connection,
	// and on this one that is only the next WAIT.
	Conn driver.Batcher
	// Want is how many replicas must acknowledge.
	Want int
	// Fsync asks for the append-only files of the node and of the replicas.
	Fsync bool
	// Limit is how long a WAIT lasts at most.
	Limit time.Duration
}

// command returns the WAIT or WAITAOF for want acknowledgements.
func (r Replicas) command(want int, limit time.Duration) []string {
	if r.Fsync {
		return []string{"WAITAOF", "1", strconv.Itoa(want), milliseconds(max(limit, time.Millisecond))}
	}
	return wait(want, limit)
}

func wait(want int, limit time.Duration) []string {
	return []string{"WAIT", strconv.Itoa(want), milliseconds(max(limit, time.Millisecond))} // 0 would be for ever
}

// ReplicasError says that a step was executed but that too few replicas acknowledged it.
type ReplicasError struct {
	Acknowledged, Wanted int
	Limit                time.Duration
	// Fsync: the acknowledgement was to say that the step is on disk. Local: it is on the node's
	// own disk.
	Fsync, Local bool
	// Err is why it is not known how many acknowledged it, or nil.
	Err error
}

func (e *ReplicasError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("no acknowledgement: %v", e.Err)
	}
	text := fmt.Sprintf("%d of %d replicas acknowledged it within %v", min(e.Acknowledged, e.Wanted), e.Wanted, e.Limit)
	switch {
	case !e.Fsync:
		return text
	case e.Local:
		return text + " as on disk: they need appendonly yes and appendfsync always, too"
	case e.Wanted > 0:
		text += " as on disk, and the node itself did not"
	default:
		text = fmt.Sprintf("the node did not acknowledge it within %v as on disk", e.Limit)
	}
	return text + ": set its appendfsync to always"
}

func (e *ReplicasError) Unwrap() error { return e.Err }

// historyError says that the replicas of another server were asked than the one that voted, or that this one was a
// replica meanwhile: they may lack the vote.
type historyError struct{ voted, asked string }

func (e *historyError) Error() string {
	voted, _, _ := strings.Cut(e.voted, " ")
	asked, _, _ := strings.Cut(e.asked, " ")
	if voted == asked {
		return "the server was a replica for a while since it voted, or its first replica came"
	}
	return fmt.Sprintf("the server with run_id %s voted, and that with run_id %s was asked for its replicas: if this goes on, one is a former master, to which a connection still leads: make it a replica, or end it", voted, asked)
}

// noWait is the server's refusal of WAIT or WAITAOF to this client, which asking again does not change. The server does
// all else.
type noWait struct{ error }

func (e noWait) Unwrap() error { return e.error }

// errNoWord does not say that the server hangs: it may be the replicas that do. Servers that are idle end a WAIT up to 100 ms
// late, so that two in turn may last longer than a step.
var errNoWord = errors.New("the time for it was over")

// replicas collects the votes that wait for replicas into groups. One group is under way at a time:
// one write and one WAIT stand for all votes that were answered before. There is one replication
// stream, so a replica that has the write has the votes.
type replicas struct {
	Replicas
	barrier []string // the write

	mu      sync.Mutex // guards what follows; nothing is called while it is held
	waiting []acknowledgement
	running bool
}

// acknowledgement is one vote that waits. The server with the history answered it.
type acknowledgement struct {
	history string
	done    chan error // has room for the one error that is sent
}

func newReplicas(o Replicas, key, ttl string) *replicas {
	return &replicas{Replicas: o, barrier: []string{"EVAL", script.Barrier.Text, "1", key, ttl}}
}

// probeReplicas makes sure, before a vote is asked for, that the server knows the command and that
// the connection for it stands.
func (n *Node) probeReplicas(ctx context.Context) error {
	if n.replicas == nil {
		return nil
	}
	// In a Cluster a command without a key goes to any server, even a replica. So a command with a
	// key, which changes nothing, goes before it.
	_, errs := n.replicas.Conn.Batch(ctx, []string{"GET", n.replicas.barrier[3]}, n.replicas.command(0, 0))
	if err := errs[0]; err != nil && !isReply(err) {
		return err
	}
	err := errs[1]
	if isByReplica(err) { // the connection still leads to a former master
		seek(ctx, n.replicas.Conn)
		return admission.ErrReplica
	}
	if !isReply(err) || !isFinal(err) {
		return err
	}
	if n.replicas.Fsync {
		return noWait{fmt.Errorf("%w: Config.Replicas.Fsync needs WAITAOF, which Redis and Valkey have from 7.2 on, and appendonly yes: %w", admission.ErrUnfit, err)}
	}
	return noWait{fmt.Errorf("%w: Config.Replicas needs WAIT: %w", admission.ErrUnfit, err)}
}

// acknowledged waits until replicas have acknowledged a vote of the server that was seen, or ctx is
// done. The error is a *ReplicasError.
func (n *Node) acknowledged(ctx context.Context, seen *sighting) error {
	r := n.replicas
	a := acknowledgement{history: seen.history, done: make(chan error, 1)}
	r.mu.Lock()
	if len(r.waiting) >= maxInFlight {
		r.mu.Unlock()
		return r.unasked(fmt.Errorf("%d others are waiting for it", maxInFlight))
	}
	r.waiting = append(r.waiting, a)
	start := !r.running
	r.running = true
	r.mu.Unlock()
	if start {
		n.background.Go(func() { r.serve(n.life) })
	}
	select {
	case err := <-a.done:
		_, other := errors.AsType[*historyError](err)
		if _, refused := errors.AsType[noWait](err); other || refused || isByReplica(err) {
			// What is known is about another server, the connection for WAIT leads to a former one, or the right to
			// wait was taken away.
			n.link.distrust()
		}
		return err
	case <-ctx.Done():
		return r.unasked(errNoWord)
	}
}

func (r *replicas) unasked(err error) error {
	return &ReplicasError{Wanted: r.Want, Limit: r.Limit, Fsync: r.Fsync, Err: err}
}

// serve has one group after the other acknowledged until nobody waits.
func (r *replicas) serve(life context.Context) {
	for {
		r.mu.Lock()
		group := r.waiting
		r.waiting = nil
		r.running = len(group) > 0
		r.mu.Unlock()
		if len(group) == 0 {
			return
		}
		history, err := r.ask(life)
		for _, a := range group {
			if a.history != history && r.asked(err) {
				a.done <- r.unasked(&historyError{voted: a.history, asked: history})
				continue
			}
			a.done <- err
		}
	}
}

// asked reports whether err comes from an answer of the replicas.
func (r *replicas) asked(err error) bool {
	failure, ok := errors.AsType[*ReplicasError](err)
	return !ok || failure.Err == nil
}

// ask writes and waits for the replicas. It returns the history of the server that it wrote to.
func (r *replicas) ask(life context.Context) (history string, err error) {
	ctx, cancel := context.WithTimeout(life, 2*r.Limit+time.Second)
	defer cancel()
	commands := [][]string{r.barrier, r.command(r.Want, r.Limit)}
	if r.Fsync && r.Want > 0 {
		// WAITAOF asks the replicas once. One that is asked in the moment in which it gets the write says that it is
		// not on disk yet, and that it is up to a second later. So WAITAOF comes when they have the write.
		commands = [][]string{r.barrier, wait(r.Want, r.Limit/4), r.command(r.Want, r.Limit-r.Limit/4)}
	}
	replies, errs := r.Conn.Batch(ctx, commands...)
	last := len(commands) - 1
	switch err := cmp.Or(errs[0], errs[last]); { // the last is often the same; WAIT may be forbidden
	case err != nil && errs[0] == nil && isFinal(err):
		return "", r.unasked(noWait{err})
	case err != nil:
		return "", r.unasked(err)
	}
	history, local, count := replies[0].Text, true, replies[last].Int
	if r.Fsync {
		if len(replies[last].Array) != 2 {
			return "", r.unasked(fmt.Errorf("WAITAOF answered %v", replies[last]))
		}
		local, count = replies[last].Array[0].Int > 0, replies[last].Array[1].Int
	}
	if local && int(count) < r.Want && errs[1] != nil {
		return history, r.unasked(errs[1]) // without the WAIT most replicas are asked too early
	}
	if !local || int(count) < r.Want {
		return history, &ReplicasError{Acknowledged: int(count), Wanted: r.Want, Limit: r.Limit, Fsync: r.Fsync, Local: local}
	}
	return history, nil
}
