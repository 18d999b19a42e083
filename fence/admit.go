package fence

import (
	"context"
	"fmt"
)

// Admission is what a guard in front of a handler let in, see [Admit].
type Admission struct {
	Resource string
	Token    uint64
	Shared   bool // it is a reader's: compare it again by EnterShared, and write nothing
}

// admissionKey and tokenKey are two keys, because what came in must not go out by itself: the token that a service is
// called with belongs to the caller's lock, not to the locks of the services that it calls in turn.
type (
	admissionKey struct{}
	tokenKey     struct{}
)

// Admit is the guard of a server that does not speak net/http: it reads a token as [ParseToken] does, enters resource at
// store, and returns a ctx that [Admitted] reads. In a gRPC interceptor:
//
//	md, _ := metadata.FromIncomingContext(ctx)
//	ctx, err := fence.Admit(ctx, store, resourceOf(req), strings.Join(md.Get("redlatch-fencing-token"), ","))
//	switch {
//	case errors.Is(err, fence.ErrStale):
//		return nil, status.Error(codes.FailedPrecondition, err.Error())
//	case errors.Is(err, fence.ErrInvalid):
//		return nil, status.Error(codes.InvalidArgument, err.Error())
//	case err != nil:
//		return nil, status.Error(codes.Unavailable, "fencing guard not reachable")
//	}
//	return handler(ctx, req)
//
// It blocks as store does. Errors: a *StaleError ([ErrStale]), [ErrInvalid] for an absent or malformed token, or store's
// own. ctx is then returned unchanged. What holds between Admit and the handler's write is said at [HTTP].
func Admit(ctx context.Context, store Store, resource, token string) (context.Context, error) {
	return admit(ctx, store, resource, token, false)
}

// AdmitShared is [Admit] for a reader's token, see [SharedStore]. A store that is no SharedStore is entered as by a
// writer: it refuses some readers that it need not, and lets none in wrongly. The sender says whether a token is a
// reader's; if it does not say so, call Admit.
func AdmitShared(ctx context.Context, store Store, resource, token string) (context.Context, error) {
	return admit(ctx, store, resource, token, true)
}

func admit(ctx context.Context, store Store, resource, token string, reader bool) (context.Context, error) {
	if err := checkContext(ctx); err != nil {
		return ctx, err
	}
	if store == nil {
		return ctx, fmt.Errorf("%w: nil Store: pass a Memory, a Redis or a Table's Store", ErrInvalid)
	}
	n, err := ParseToken(token)
	if err != nil {
		return ctx, err
	}
	if err := check(resource, n); err != nil {
		return ctx, err
	}
	enter := store.Enter
	if shared, ok := store.(SharedStore); ok && reader {
		enter = shared.EnterShared
	}
	if err := enter(ctx, resource, n); err != nil {
		return ctx, err
	}
	return context.WithValue(ctx, admissionKey{}, Admission{resource, n, reader}), nil
}

// Admitted returns what [Admit] or [HTTP] let in, and false if neither guards. Handlers use it to compare again in the
// transaction that writes.
func Admitted(ctx context.Context) (Admission, bool) {
	a, ok := ctx.Value(admissionKey{}).(Admission)
	return a, ok
}

// WithToken returns a ctx whose requests [Transport] sends with token.
func WithToken(ctx context.Context, token uint64) context.Context {
	return context.WithValue(ctx, tokenKey{}, sentToken{token, false})
}

// WithSharedToken is [WithToken] for a reader's token.
func WithSharedToken(ctx context.Context, token uint64) context.Context {
	return context.WithValue(ctx, tokenKey{}, sentToken{token, true})
}

// sentToken is what WithToken and WithSharedToken put into a context.
type sentToken struct {
	token  uint64
	shared bool
}
