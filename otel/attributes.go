package otel

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
)

// The keys of attributes.
const (
	failureKey  = attribute.Key("error.type")
	templateKey = attribute.Key("redlatch.lock.template")
	triesKey    = attribute.Key("redlatch.lock.tries")
	tokenKey    = attribute.Key("redlatch.lock.token")
	nodeKey     = attribute.Key("redlatch.node.name")
)

// token is below 2^53.
func token(token uint64) attribute.KeyValue { return tokenKey.Int64(int64(token)) }

// Values of error.type.
const (
	heldByAnother = "held"
	canceled      = "canceled"
	timeout       = "timeout"

	expired = "expired"
	maxHold = "max_hold"
	gone    = "gone"
)

var (
	// noErrors are an answer, and what the caller chose: they do not make a span an error.
	noErrors = []string{heldByAnother, canceled, timeout}
	losses   = []string{expired, maxHold, gone}
)

// attributes are the attributes of an event of a lock.
type attributes struct{ template, failure string }

// attributes returns those of a lock with this name.
func (o *Observer) attributes(name string) attributes {
	return attributes{template: o.template(name)}
}

func (a attributes) list() []attribute.KeyValue {
	var list []attribute.KeyValue
	if a.template != "" {
		list = append(list, templateKey.String(a.template))
	}
	if a.failure != "" {
		list = append(list, failureKey.String(a.failure))
	}
	return list
}

func (a attributes) metric() metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(a.list()...))
}

// failure returns one of a few words for err, "" for nil. ctx is the call's: what stood in the
// call's way says more than that ctx has ended.
func failure(ctx context.Context, err error) string {
	if err == nil {
		return ""
	}
	for _, kind := range []struct {
		err  error
		word string
	}{
		{redlatch.ErrClosed, "closed"}, {redlatch.ErrInvalid, "invalid"}, {redlatch.ErrRefused, "refused"},
		{redlatch.ErrNotAdmitted, "not_admitted"}, {redlatch.ErrNoQuorum, "no_quorum"}, {redlatch.ErrOverloaded, "overloaded"}, {redlatch.ErrHeld, heldByAnother},
		{context.DeadlineExceeded, timeout}, {context.Canceled, canceled}, {redlatch.ErrLost, gone},
	} {
		if errors.Is(err, kind.err) || kind.err == ctx.Err() {
			return kind.word
		}
	}
	return "_OTHER"
}

// unanswered reports whether err is that of a try in whose way no node is known to have stood.
func unanswered(err error) bool {
	quorum, ok := errors.AsType[*redlatch.QuorumError](err)
	return ok && !slices.ContainsFunc(quorum.Nodes, func(node redlatch.NodeAnswer) bool {
		return node.Verdict != redlatch.VoteUnknown && node.Verdict != redlatch.VoteGranted
	})
}

// loss returns why a lock was lost.
func loss(e redlatch.LockLost) string {
	switch {
	case e.Gone:
		return gone
	case errors.Is(e.Err, redlatch.ErrMaxHold):
		return maxHold
	}
	return expired
}

// span makes a span that ends now and lasted for took.
func (o *Observer) span(ctx context.Context, name string, of attributes, now time.Time, took time.Duration, more ...attribute.KeyValue) {
	if of.template != "" {
		name += " " + of.template
	}
	_, span := o.tracer.Start(ctx, name, trace.WithTimestamp(now.Add(-took)), trace.WithAttributes(of.list()...), trace.WithAttributes(more...))
	if of.failure != "" && !slices.Contains(noErrors, of.failure) {
		span.SetStatus(codes.Error, of.failure)
	}
	span.End(trace.WithTimestamp(now))
}
