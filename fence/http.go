package fence

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
)

// DefaultHeader is the request header that carries the token as a decimal number.
const DefaultHeader = "Redlatch-Fencing-Token"

// sharedSuffix follows that header's name in the name of the header that says, by the value "true", that the token is a
// reader's. A guard of a version that does not know it takes the token for a writer's, which is safe.
const sharedSuffix = "-Shared"

// HTTP guards handlers: it lets a request through if its token is not smaller than the largest seen for the resource,
// whatever the method, since the first access of a new holder may well be a GET.
//
// # What it does not do
//
// The guard is asked first and the handler runs then, so the two are not one step: an old holder's request that was
// admitted can still be on its way to the storage when a new holder is admitted, and write after it has read. The
// window is as long as a handler takes, not as long as a client pauses. To close it, have the handler compare again
// where it writes, with the token from [Admitted]: in its transaction by [Table.Do] or [Column.Do], in its Redis script
// by [Redis.Open], or, where a resource is this process's own, in [Memory.Do]. Then this guard is there to refuse early.
//
// # Readers
//
// With the header Redlatch-Fencing-Token-Shared: true (the name in Header and -Shared, if Header is set) a token is a
// reader's, and Store is entered as by [AdmitShared]. With a method other than GET, HEAD, OPTIONS, TRACE or QUERY such
// a token is invalid.
//
// # What is believed
//
// A token is believed. Whoever may send a request can send a huge token and so lock all others out of that resource:
// let only authenticated clients come as far as this.
//
// # Answers
//
// A refusal is application/problem+json (RFC 9457), which [FromResponse] reads:
//
//   - 412 Precondition Failed for a stale token, with resource, token and largest in the body. Not 409 Conflict, which
//     several client libraries repeat by themselves; with the same token that can never help.
//   - 428 Precondition Required for a request without the header.
//   - 400 Bad Request for a token that is none, several tokens, or an empty resource name.
//   - 503 Service Unavailable if the Store fails, the reason going to Log only.
type HTTP struct {
	// Store remembers the largest tokens. Required.
	Store Store

	// Resource names what a request accesses, such as "account:42" from its path. All that one lock protects is one
	// resource. Required.
	Resource func(*http.Request) string

	// Header carries the token. Defaults to [DefaultHeader].
	Header string

	// Optional lets requests without the header through, unguarded, as long as not all clients send it. What such a
	// client writes is protected by nothing. Defaults to false: they are refused.
	Optional bool

	// Log is told of refusals (Info) and of errors of the Store (Error). Defaults to nil: silent.
	Log *slog.Logger
}

// Handler returns next behind the guard. It panics if Store, Resource or next is nil.
func (h HTTP) Handler(next http.Handler) http.Handler {
	if h.Store == nil || h.Resource == nil || next == nil {
		panic("fence: HTTP.Handler needs HTTP.Store, HTTP.Resource and a handler")
	}
	if h.Header == "" {
		h.Header = DefaultHeader
	}
	if h.Log == nil {
		h.Log = slog.New(slog.DiscardHandler)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values := r.Header.Values(h.Header)
		if len(values) == 0 && h.Optional {
			next.ServeHTTP(w, r)
			return
		}
		admitted, refusal := h.admit(r, values)
		if refusal != nil {
			refusal.write(w)
			return
		}
		next.ServeHTTP(w, admitted)
	})
}

// admit enters the request's resource and returns the request with the admission in its context, or says why not.
func (h HTTP) admit(r *http.Request, values []string) (*http.Request, *problem) {
	switch len(values) {
	case 0:
		return nil, &problem{Type: problemMissing, Status: http.StatusPreconditionRequired, Title: "Fencing token required",
			Detail: fmt.Sprintf("the header %s is missing: send the fencing token of the lock you hold", h.Header)}
	case 1:
	default:
		return nil, &problem{Type: problemInvalid, Status: http.StatusBadRequest, Title: "Invalid fencing token",
			Detail: fmt.Sprintf("the header %s is there %d times: send one token", h.Header, len(values))}
	}
	resource := h.Resource(r)
	shared := r.Header.Get(h.Header+sharedSuffix) == "true"
	if shared && !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "QUERY"}, r.Method) {
		return nil, &problem{Type: problemInvalid, Status: http.StatusBadRequest, Title: "Invalid fencing token",
			Detail: fmt.Sprintf("a reader's token with %s: hold the lock as a writer", r.Method)}
	}
	ctx, err := admit(r.Context(), h.Store, resource, values[0], shared)
	if err == nil {
		return r.WithContext(ctx), nil
	}
	if stale, ok := errors.AsType[*StaleError](err); ok {
		h.Log.InfoContext(ctx, "fencing token refused", "resource", resource, "token", stale.Token, "largest", stale.Largest)
		return nil, &problem{Type: problemStale, Status: http.StatusPreconditionFailed, Title: "Stale fencing token",
			Detail: stale.Error(), Resource: stale.Resource, Token: stale.Token, Largest: stale.Largest}
	}
	if errors.Is(err, ErrInvalid) {
		h.Log.InfoContext(ctx, "fencing token refused", "resource", resource, "error", err)
		return nil, &problem{Type: problemInvalid, Status: http.StatusBadRequest, Title: "Invalid fencing token", Detail: err.Error()}
	}
	level := slog.LevelError
	if ctx.Err() != nil {
		level = slog.LevelInfo // the client went away; this is no fault of the Store
	}
	h.Log.Log(ctx, level, "fencing guard failed", "resource", resource, "error", err)
	return nil, &problem{Type: problemUnavailable, Status: http.StatusServiceUnavailable, Title: "Fencing guard not available",
		Detail: "the fencing token could not be compared; nothing was done"}
}

// The kinds of problem that FromResponse tells apart.
const (
	problemStale       = "urn:redlatch:fence:stale"
	problemMissing     = "urn:redlatch:fence:missing"
	problemInvalid     = "urn:redlatch:fence:invalid"
	problemUnavailable = "urn:redlatch:fence:unavailable"

	problemContentType = "application/problem+json"
)

// problem is the body of a refusal. JSON numbers are exact up to MaxToken.
type problem struct {
	Type     string `json:"type"`
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail"`
	Resource string `json:"resource,omitempty"`
	Token    uint64 `json:"token,omitempty"`
	Largest  uint64 `json:"largest,omitempty"`
}

func (p *problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil {
		panic("fence: a struct of strings and numbers has JSON: " + err.Error())
	}
	w.Header().Set("Content-Type", problemContentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	w.Write(body)
}
