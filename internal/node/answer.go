package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/admission"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redisconn"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/vote"
)

// isReply reports whether err is the server's own answer.
func isReply(err error) bool {
	_, ok := errors.AsType[*driver.ServerError](err)
	return ok
}

// isFinal reports whether asking again would bring the same answer. It does not where the server has
// refused the connection, such as the user's password, and was not asked at all.
func isFinal(err error) bool {
	refusal, ok := errors.AsType[*driver.ServerError](err)
	return err == nil || ok && !refusal.Passing() && !refusal.LoggedOut() && !errors.Is(err, driver.ErrNotSent)
}

// code returns the first word of the server's refusal, "" where err is none.
func code(err error) string {
	if refusal, ok := errors.AsType[*driver.ServerError](err); ok {
		return refusal.Code()
	}
	return ""
}

func isNoScript(err error) bool  { return code(err) == "NOSCRIPT" }
func isWrongType(err error) bool { return code(err) == "WRONGTYPE" }
func forbidden(err error) bool   { return code(err) == "NOPERM" }

// ofAnotherKind explains the error WRONGTYPE for a lock's key: other libraries keep their locks in
// hashes and lists. The server's text stays.
func ofAnotherKind(err error) error {
	if isWrongType(err) {
		return fmt.Errorf("held by a lock of another kind (%w)", err)
	}
	return err
}

// isByReplica reports whether the server refused because it is a replica.
func isByReplica(err error) bool {
	refusal, ok := errors.AsType[*driver.ServerError](err)
	return ok && refusal.ByReplica()
}

// isUnable reports whether the server cannot do this, and did not.
func isUnable(err error) bool {
	refusal, ok := errors.AsType[*driver.ServerError](err)
	return ok && refusal.Unable()
}

// answer converts a step's reply to an Answer.
func answer(reply driver.Reply, err error) vote.Answer {
	switch {
	case err == nil && reply.Kind == driver.Int && reply.Int > 0:
		return vote.Answer{Verdict: vote.Granted, Counter: uint64(reply.Int)}
	case err == nil && reply.Kind == driver.Int:
		return vote.Answer{Verdict: vote.NotOurs}
	case err == nil && reply.Kind == driver.Array && len(reply.Array) == 3 && reply.Array[0].Kind == driver.Int:
		return vote.Answer{Verdict: vote.Granted, Counter: uint64(reply.Array[0].Int), Transferred: reply.Array[1].Int == 1, Waiting: reply.Array[2].Int == 1}
	case err == nil && reply.Kind == driver.Array && (len(reply.Array) == 2 || len(reply.Array) == 3):
		left := time.Duration(reply.Array[1].Int) * time.Millisecond
		a := vote.Answer{Verdict: vote.Held, Holder: vote.HolderIn(reply.Array[0].Text), Left: left}
		if len(reply.Array) == 3 {
			a.Which = uint8(reply.Array[2].Int)
		}
		return a
	case err == nil:
		return vote.Answer{Verdict: vote.Refused, Err: fmt.Errorf("a script answered %v", reply)}
	}
	return failure(err)
}

// granted is answer for a step that answers with a counter, which may be negative.
func granted(reply driver.Reply, err error) vote.Answer {
	if err == nil && reply.Kind == driver.Int && reply.Int < 0 {
		return vote.Answer{Verdict: vote.Granted, Counter: uint64(reply.Int)}
	}
	return answer(reply, err)
}

// isCounter reports whether token can be a token counter: beyond script.MaxCounter the server
// cannot tell a number from the next.
func isCounter(token uint64) bool { return 0 < token && token <= script.MaxCounter }

// badCounter returns the answer of a node that granted under a number that no token counter can be.
func badCounter(key string, token uint64) vote.Answer {
	return vote.Answer{Verdict: vote.Refused, Err: fmt.Errorf(
		"the token counter %q gave %d, which no client has written: delete the key when nobody holds the lock", key, int64(token))}
}

// failure tells apart a refusal that waiting does not cure, one that it may cure, and a missing
// answer.
func failure(err error) vote.Answer {
	if _, ok := errors.AsType[*ReplicasError](err); ok {
		return vote.Answer{Verdict: vote.NotReplicated, Err: err}
	}
	if waiting, ok := errors.AsType[*admission.WaitError](err); ok {
		return vote.Answer{Verdict: vote.NotAdmitted, Left: waiting.Left, Err: waiting}
	}
	refusal, ok := errors.AsType[*driver.ServerError](err)
	switch {
	case ok && refusal.Midway():
		return vote.Answer{Verdict: vote.Unknown, Err: fmt.Errorf("the hash slot is being moved, and the server ended the script midway: %w", refusal)}
	case ok && refusal.Passing():
		return vote.Answer{Verdict: vote.Unavailable, Err: refusal}
	// What breaks a connection that stands, such as an alert of TLS, is not an answer to what was sent over it.
	case Unfit(err) && (ok || errors.Is(err, driver.ErrNotSent) || errors.Is(err, admission.ErrUnfit)):
		return vote.Answer{Verdict: vote.Refused, Err: explained(err)}
	case errors.Is(err, driver.ErrNotSent):
		return vote.Answer{Verdict: vote.NotSent, Err: err}
	}
	return vote.Answer{Verdict: vote.Unknown, Err: err}
}

// Unfit reports whether err is a refusal that waiting does not cure.
func Unfit(err error) bool { return errors.Is(err, admission.ErrUnfit) || redisconn.Unfit(err) }

// explained adds to an error of the ACL what is missing, as far as the server tells, and how to
// find out the rest. The server's text stays.
func explained(err error) error {
	const rest = "`redlatch doctor --lock NAME` lists what is missing"
	refusal, ok := errors.AsType[*driver.ServerError](err)
	if !ok {
		return err
	}
	command, denied := refusal.Denied()
	switch {
	case !denied:
		return err
	case command == "":
		return fmt.Errorf("the user may not do all that a lock takes; %s: %w", rest, err)
	}
	return fmt.Errorf("the user may not use %s (+%[1]s); %s: %w", command, rest, err)
}

// unlessScriptIsGone is answer for a step that only an admitted node can do. A node that lost its
// scripts may have lost the record with them; its vote does not count until somebody's acquire step
// has had it admitted.
func (n *Node) unlessScriptIsGone(reply driver.Reply, err error) vote.Answer {
	if isNoScript(err) {
		return failure(&admission.WaitError{Reason: "it restarted, was promoted or lost its scripts"})
	}
	return answer(reply, err)
}
