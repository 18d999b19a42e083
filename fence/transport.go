package fence

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/redlatch/redlatch/internal/printable"
)

// SetHeader sets [DefaultHeader] to token. For another header, or for metadata of other protocols, format the token as a
// decimal number.
func SetHeader(h http.Header, token uint64) {
	h.Set(DefaultHeader, strconv.FormatUint(token, 10))
	h.Del(DefaultHeader + sharedSuffix)
}

// SetSharedHeader sets [DefaultHeader] to a reader's token, and the header beside it that says so.
func SetSharedHeader(h http.Header, token uint64) {
	SetHeader(h, token)
	h.Set(DefaultHeader+sharedSuffix, "true")
}

// Transport sends each request with the token that [WithToken] or [WithSharedToken] put into its context. A request
// without a token is refused with [ErrInvalid] and not sent, so that a client meant for guarded resources cannot reach
// them unguarded by oversight. It is safe for concurrent use.
type Transport struct {
	// Base sends the request. Defaults to http.DefaultTransport.
	Base http.RoundTripper

	// Header carries the token. Defaults to [DefaultHeader].
	Header string
}

// RoundTrip implements http.RoundTripper. The request is not changed; a header the caller has set is replaced.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent, ok := r.Context().Value(tokenKey{}).(sentToken)
	err := checkToken(sent.token)
	if !ok {
		err = fmt.Errorf("%w: no fencing token in the request's context: put it there with fence.WithToken", ErrInvalid)
	}
	if err != nil {
		// RoundTrip must close the body whatever happens.
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	base, header := t.Base, t.Header
	if base == nil {
		base = http.DefaultTransport
	}
	if header == "" {
		header = DefaultHeader
	}
	r = r.Clone(r.Context())
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	r.Header.Set(header, strconv.FormatUint(sent.token, 10))
	r.Header.Del(header + sharedSuffix)
	if sent.shared {
		r.Header.Set(header+sharedSuffix, "true")
	}
	return base.RoundTrip(r)
}

// FromResponse returns the error that [HTTP] answered with: a *StaleError ([ErrStale]), an error in which errors.Is finds
// [ErrInvalid], or one that says the guard was not available, in which case the request may be repeated. For every
// other response, successful or not, it returns nil, and so it does for that to a HEAD request, which has no body: its
// status tells. The body can still be read afterwards, and is the caller's to close.
func FromResponse(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusPreconditionFailed, http.StatusPreconditionRequired, http.StatusBadRequest, http.StatusServiceUnavailable:
	default:
		return nil
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != problemContentType {
		return nil
	}
	// Our refusals are far below the bound; a longer body is somebody else's, and is put together again.
	const bound = 64 << 10
	head, readErr := io.ReadAll(io.LimitReader(resp.Body, bound))
	rest := io.Reader(resp.Body)
	if readErr != nil {
		rest = failedReader{readErr}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), rest), resp.Body}

	var p problem
	if json.Unmarshal(head, &p) != nil {
		return nil
	}
	switch p.Type {
	case problemStale:
		return &StaleError{Resource: p.Resource, Token: p.Token, Largest: p.Largest}
	case problemMissing, problemInvalid:
		return fmt.Errorf("%w: refused by the server: %s", ErrInvalid, printable.Text(p.Detail))
	case problemUnavailable:
		return errors.New("fence: refused by the server: " + printable.Text(p.Detail))
	}
	return nil
}

// failedReader repeats the error that ended a body.
type failedReader struct{ err error }

func (r failedReader) Read([]byte) (int, error) { return 0, r.err }
