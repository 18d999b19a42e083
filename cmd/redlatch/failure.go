package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/printable"
)

// failure turns an error of the library into an exit code and a message. doing is
// the verb for what could not be done to the lock.
func (c *connection) failure(doing, name string, err error) *outcome {
	end := c.failed(fmt.Sprintf("%s %q", doing, name), err)
	if quorum, ok := errors.AsType[*redlatch.QuorumError](err); ok {
		end.err = fmt.Errorf("cannot %s %q: %s", doing, name, headline(quorum, doing))
	}
	return end
}

// failed is like failure. what names all that could not be done.
func (c *connection) failed(what string, err error) *outcome {
	end := &outcome{code: exitInternal, err: fmt.Errorf("cannot %s: %w", what, err)}
	switch {
	case errors.Is(err, redlatch.ErrInvalid):
		end.code = exitUsage
	case errors.Is(err, redlatch.ErrRefused):
		end.code = exitRefused
	case errors.Is(err, redlatch.ErrNoQuorum), errors.Is(err, redlatch.ErrNotAdmitted):
		end.code = exitNoQuorum
	}
	if quorum, ok := errors.AsType[*redlatch.QuorumError](err); ok {
		end.err = fmt.Errorf("cannot %s: %s", what, headline(quorum, "lock"))
		end.details = answers(quorum.Nodes)
		if quorum.Op == "query" || quorum.Op == "observe" {
			end.details = looked(quorum.Nodes)
		}
		end.hints = c.hints(quorum)
	}
	return end
}

// headline sums the nodes' answers up in one line. doing is the verb for what could not be done to
// the lock.
func headline(quorum *redlatch.QuorumError, doing string) string {
	count := func(verdict redlatch.Verdict) int {
		n := 0
		for _, node := range quorum.Nodes {
			if node.Verdict == verdict {
				n++
			}
		}
		return n
	}
	what := "no quorum"
	switch {
	case errors.Is(quorum, redlatch.ErrRefused):
		what = "refused"
	case errors.Is(quorum, redlatch.ErrNotAdmitted):
		what = "too few nodes are admitted"
	}
	done := "granted"
	switch doing {
	case "extend":
		done = "extended"
	case "unlock":
		done = "released"
	case "list":
		return fmt.Sprintf("%s: %d of %d nodes answered, %d are needed", what, count(redlatch.VoteGranted), quorum.Of, quorum.Need)
	case "show", "watch":
		answered := count(redlatch.VoteHeld) + count(redlatch.VoteNotOurs)
		return fmt.Sprintf("%s: %d of %d nodes answered, too few to tell who holds it", what, answered, quorum.Of)
	}
	late := ""
	if count(redlatch.VoteGranted) >= quorum.Need {
		late = ", but too late, or not under one token"
	}
	return fmt.Sprintf("%s: %d of %d nodes %s it, %d are needed%s", what, count(redlatch.VoteGranted), quorum.Of, done, quorum.Need, late)
}

// hints tell an operator what to do about nodes that do not vote at all, or not for these settings.
func (c *connection) hints(quorum *redlatch.QuorumError) []string {
	var hints []string
	if slices.ContainsFunc(quorum.Nodes, func(node redlatch.NodeAnswer) bool { return disagrees(node.Err) }) {
		hints = append(hints, c.setHint())
	}
	errs := make([]error, len(quorum.Nodes))
	for i, node := range quorum.Nodes {
		errs[i] = node.Err
	}
	for _, hint := range remedies(errs...) {
		if hint == permissionHint && quorum.Op == "list" {
			hint = listHint
		}
		hints = append(hints, hint)
	}
	switch out := notAdmitted(quorum); len(out) {
	case 0:
	case 1:
		hints = append(hints, noLock+c.admitCommand(out[0].Node))
	default:
		hints = append(hints, noLock+c.admitAllCommand())
	}
	return hints
}

// passwordHint is the remedy for a missing or wrong password.
const passwordHint = "write redis://USER:PASSWORD@HOST:PORT, or give the password with --password-file or REDLATCH_PASSWORD; one that Sentinels ask for is sentinel_password in the URL"

// permissionHint is the remedy if the user may not do something.
const permissionHint = "redlatch doctor lists what the user may not do"

// listHint is permissionHint with what doctor does not look for, as no lock needs it.
const listHint = "redlatch list needs +scan +getrange, and redlatch show needs +getrange; redlatch doctor lists what else the user may not do"

// keyHint is the remedy if a key of the lock is of another type.
const keyHint = "redlatch doctor --lock NAME says which key is in the way, and what to do"

// certificateHint is the remedy if the server's certificate is refused here.
const certificateHint = "the certificate must be for the host in the URL and not have expired; --ca names the file with the CA that signed it, if that is none of the system's"

// tlsHint is the remedy if the server refuses the handshake: its alert has a word or two.
const tlsHint = "the server must permit TLS 1.2 or later, with a cipher that is usual there (tls-protocols, tls-ciphers); where it asks for a client certificate, --cert must be signed by a CA that it knows (tls-ca-cert-file) and not have expired"

// remedy is what to do about the error of a node, or "" if nobody knows more than its text says.
func remedy(err error) string {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return certificateHint
	}
	if alert, ok := errors.AsType[*net.OpError](err); ok && alert.Op == "remote error" {
		return tlsHint
	}
	refusal, ok := errors.AsType[*driver.ServerError](err)
	switch {
	case !ok:
	case refusal.Code() == "NOAUTH", refusal.Code() == "WRONGPASS":
		return passwordHint
	case refusal.Code() == "NOPERM" && !strings.Contains(err.Error(), "redlatch doctor"):
		return permissionHint
	case refusal.Code() == "WRONGTYPE":
		return keyHint
	}
	return ""
}

// remedies returns the remedy for each of the errors, each once.
func remedies(errs ...error) (hints []string) {
	for _, err := range errs {
		if hint := remedy(err); hint != "" && !slices.Contains(hints, hint) {
			hints = append(hints, hint)
		}
	}
	return hints
}

// errorsOf returns the errors of the nodes that could not be examined.
func errorsOf(nodes []doctor.Report) []error {
	errs := make([]error, len(nodes))
	for i, node := range nodes {
		errs[i] = node.Err
	}
	return errs
}

// noLock begins the advice to vouch for nodes. It is right whatever the nodes may have forgotten the locks
// by: a start, a promotion, keys that were deleted, or other settings.
const noLock = "if no lock is held any more: "

// notAdmitted returns the nodes that do not vote yet.
func notAdmitted(quorum *redlatch.QuorumError) []redlatch.NodeAnswer {
	var out []redlatch.NodeAnswer
	for _, node := range quorum.Nodes {
		if node.Verdict == redlatch.VoteNotAdmitted {
			out = append(out, node)
		}
	}
	return out
}

// holderText says who holds the lock, since when, and how long the holder has left.
func (c *connection) holderText(quorum *redlatch.QuorumError) string {
	holder, left, ok := quorum.Holder()
	switch {
	case !ok:
		return "no node says who"
	case holder.ID == "":
		return "no node says who: clients that wait for it come first, or a key without a value is in the way"
	}
	return c.holdingText(holder, left)
}

func (c *connection) holdingText(holder redlatch.Holder, left time.Duration) string {
	who := printable.Text(holder.Label)
	if holder.Shared {
		who = "readers"
	} else if holder.ID == "" {
		who = "a key without a value, which is no lock of redlatch"
	} else if who == "" {
		who = "a client without a label (" + printable.Text(holder.ID) + ")"
	}
	text := who
	if !holder.Since.IsZero() {
		text += fmt.Sprintf(" since %s (%s)", holder.Since.Local().Format(time.DateTime), short(time.Since(holder.Since)))
	}
	if left < 0 {
		return text + ", for ever: its key has no expiry"
	}
	if c.ensemble != nil {
		return fmt.Sprintf("%s, a waiter gets it within %s unless it is renewed", text, short(left))
	}
	return fmt.Sprintf("%s, %s unless it is renewed", text, c.forHowLong(left))
}
