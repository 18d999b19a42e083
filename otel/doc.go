// Package otel turns the events of a redlatch.Observer into OpenTelemetry metrics and spans:
//
//	observer, err := otel.New(otel.Config{})
//	...
//	client, err := redlatch.Open(redlatch.Config{Nodes: nodes, Observer: observer})
//
// # Metrics
//
//	redlatch.lock.acquire.duration    histogram, s       from the call to the grant, or to its failure
//	redlatch.lock.acquire.tries       counter, {try}     attempts that were made for these calls
//	redlatch.lock.round_trip.duration histogram, s       the attempts by which locks were granted
//	redlatch.lock.hold.duration       histogram, s       from the grant to the release or the loss
//	redlatch.lock.held                up-down counter, {lock}
//	redlatch.lock.losses              counter, {loss}    by error.type alone, and from 0 on, for alerts
//	redlatch.lock.extensions          counter, {extension}
//	redlatch.node.quarantined         gauge, {node}      1 while a node is known not to vote yet
//	redlatch.node.unreachable         gauge, {node}      1 while a node cannot be reached
//
// A call is in these metrics when it has ended: one that waits without a deadline because too few
// nodes answer is seen by the gauges of the nodes alone.
//
// Attributes have few values. error.type is left out where all went well. For a call that failed it
// is what stood in the way: held, no_quorum, not_admitted, overloaded, refused, closed, invalid or,
// where no try was made, timeout or canceled, which is also that of a call that was canceled in its
// first try, before the nodes could answer. For a hold it says that the lock was lost: expired,
// max_hold or gone (no quorum of nodes had it any more); or why its release failed, in the words
// for a call. For an extension it is why that failed. Anything else is _OTHER. redlatch.node.name
// is a node's address, or its #name; a node is reported from its first event on.
//
// The name of a lock is in no metric and in no span: where names have numbers in them, each would
// be a time series. With Config.Template, redlatch.lock.template groups them. The text of an error
// is not there either, because it has the name.
//
// # Spans
//
// A call for a lock is a span "lock", and the time for which a lock is held is a span "hold", each
// followed by the template, if there is one. Both are children of the span in the ctx that the call
// was given. They are made when they are over, so no span can be a child of theirs. They have
// redlatch.lock.tries and redlatch.lock.token, the fencing token. A failure other than held,
// canceled and timeout is an error, and so is a loss.
//
// The directory examples/prometheus has a program that exports the metrics to Prometheus, alerts,
// and a Grafana dashboard.
package otel
