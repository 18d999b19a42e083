package fence_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/redlatch/redlatch/fence"
)

func byPath(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }

// request asks handler once and returns its answer.
func request(t *testing.T, handler http.Handler, method, path, body string, tokens ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for _, token := range tokens {
		r.Header.Add(fence.DefaultHeader, token)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w.Result()
}

func TestHTTPAnswers(t *testing.T) {
	var store fence.Memory
	enter(t, &store, "seen", 34)
	var log bytes.Buffer
	ran := 0
	handler := fence.HTTP{Store: &store, Resource: byPath, Log: slog.New(slog.NewTextHandler(&log, nil))}.
		Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { ran++ }))

	for _, c := range []struct {
		name   string
		path   string
		tokens []string
		status int
		is     error
		says   []string
	}{
		{"larger", "/seen", []string{"35"}, 200, nil, nil},
		{"equal", "/seen", []string{"35"}, 200, nil, nil},
		{"stale", "/seen", []string{"34"}, 412, fence.ErrStale, []string{"34", "35", "seen"}},
		{"missing", "/seen", nil, 428, fence.ErrInvalid, []string{fence.DefaultHeader, "missing"}},
		{"empty", "/seen", []string{""}, 400, fence.ErrInvalid, []string{"want a decimal number"}},
		{"zero", "/seen", []string{"0"}, 400, fence.ErrInvalid, []string{"decimal number"}},
		{"too large", "/seen", []string{"9007199254740992"}, 400, fence.ErrInvalid, []string{"2^53"}},
		{"no number", "/seen", []string{"abc"}, 400, fence.ErrInvalid, []string{"abc"}},
		{"two", "/seen", []string{"36", "37"}, 400, fence.ErrInvalid, []string{"2 times"}},
		{"no resource", "/", []string{"36"}, 400, fence.ErrInvalid, []string{"resource"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := ran
			resp := request(t, handler, "GET", c.path, "", c.tokens...)
			if resp.StatusCode != c.status {
				t.Errorf("status %d, want %d", resp.StatusCode, c.status)
			}
			if admitted := ran > before; admitted != (c.status == 200) {
				t.Errorf("handler ran: %t", admitted)
			}
			err := fence.FromResponse(resp)
			if (err == nil) != (c.is == nil) || !errors.Is(err, c.is) {
				t.Fatalf("FromResponse: %v, want %v", err, c.is)
			}
			for _, part := range c.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			if c.is == nil {
				return
			}
			if cache := resp.Header.Get("Cache-Control"); cache != "no-store" {
				t.Errorf("Cache-Control: %q", cache)
			}
			var body struct{ Status int }
			if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || body.Status != c.status {
				t.Errorf("the body is gone after FromResponse: %v, status %d", err, body.Status)
			}
		})
	}
	wantStale(t, fence.FromResponse(request(t, handler, "GET", "/seen", "", "33")), 33, 35)
	if !strings.Contains(log.String(), "largest=35") {
		t.Errorf("the log does not say why:\n%s", &log)
	}
	if got := store.Largest("seen"); got != 35 {
		t.Errorf("a refused request moved the guard to %d", got)
	}
}

// failingStore is a Store whose server is down.
type failingStore struct{ err error }

func (s failingStore) Enter(context.Context, string, uint64) error { return s.err }

func TestHTTPStoreFails(t *testing.T) {
	var log bytes.Buffer
	handler := fence.HTTP{
		Store:    failingStore{errors.New("dial tcp 10.0.0.7: refused")},
		Resource: byPath,
		Log:      slog.New(slog.NewTextHandler(&log, nil)),
	}.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("let through unguarded") }))
	resp := request(t, handler, "PUT", "/a", "", "1")
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d", resp.StatusCode)
	}
	err := fence.FromResponse(resp)
	if err == nil || errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrInvalid) {
		t.Errorf("FromResponse: %v", err)
	}
	if body, _ := io.ReadAll(resp.Body); bytes.Contains(body, []byte("10.0.0.7")) {
		t.Errorf("the answer tells of the inside: %s", body)
	}
	if !strings.Contains(log.String(), "10.0.0.7") || !strings.Contains(log.String(), "ERROR") {
		t.Errorf("the log does not say why:\n%s", &log)
	}
}

// A client that went away is no failure of the Store's.
func TestHTTPClientGoesAway(t *testing.T) {
	var log bytes.Buffer
	handler := fence.HTTP{Store: failingStore{context.Canceled}, Resource: byPath, Log: slog.New(slog.NewTextHandler(&log, nil))}.
		Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("let through unguarded") }))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, "PUT", "/a", nil)
	fence.SetHeader(r.Header, 1)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(log.String(), "level=INFO") {
		t.Errorf("status %d, the log has %s", w.Code, &log)
	}
}

func TestHTTPOptionalAndHeader(t *testing.T) {
	var store fence.Memory
	ran := 0
	handler := fence.HTTP{Store: &store, Resource: byPath, Header: "X-Token", Optional: true}.
		Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ran++
			_, ok := fence.Admitted(r.Context())
			fmt.Fprint(w, ok)
		}))
	resp := request(t, handler, "GET", "/a", "", "33") // in the default header, which is not looked at here
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(body) != "false" {
		t.Errorf("status %d, admitted %s", resp.StatusCode, body)
	}
	for token, want := range map[string]int{"bad": 400, "33": 200, "34": 400} {
		r := httptest.NewRequest("GET", "/a", nil)
		if token == "34" { // as if a reader wrote
			r.Method = "PUT"
			r.Header.Set("X-Token-Shared", "true")
		}
		r.Header.Set("X-Token", token)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("token %s: status %d, want %d", token, w.Code, want)
		}
	}
	if ran != 2 {
		t.Errorf("handler ran %d times, want 2", ran)
	}
}

func TestHTTPHandlerPanicsOnMisuse(t *testing.T) {
	next := http.NotFoundHandler()
	for name, h := range map[string]func(){
		"no Store":    func() { fence.HTTP{Resource: byPath}.Handler(next) },
		"no Resource": func() { fence.HTTP{Store: &fence.Memory{}}.Handler(next) },
		"no handler":  func() { fence.HTTP{Store: &fence.Memory{}, Resource: byPath}.Handler(nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			h()
		}()
	}
}

// counterServer is a service with one counter: GET reads it, PUT replaces it.
type counterServer struct {
	mu    sync.Mutex
	value int
}

func (s *counterServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPut {
		body, _ := io.ReadAll(r.Body)
		s.value, _ = strconv.Atoi(string(body))
		return
	}
	fmt.Fprint(w, s.value)
}

// TestHTTPStories plays both stories of the package comment against a server, through the client side.
func TestHTTPStories(t *testing.T) {
	for g := unguarded; g <= enterFirst; g++ {
		for _, lateWriteFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/late write first %t", g, lateWriteFirst), func(t *testing.T) {
				counter := new(counterServer)
				guarded := fence.HTTP{Store: new(fence.Memory), Resource: byPath}.Handler(counter)
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if g == enterFirst || g == writesOnly && r.Method == http.MethodPut {
						guarded.ServeHTTP(w, r)
					} else {
						counter.ServeHTTP(w, r)
					}
				}))
				defer server.Close()
				client := &http.Client{Transport: fence.Transport{}}
				call := func(token uint64, method, body string) (string, error) {
					ctx := fence.WithToken(t.Context(), token)
					r, err := http.NewRequestWithContext(ctx, method, server.URL+"/counter", strings.NewReader(body))
					if err != nil {
						t.Fatal(err)
					}
					resp, err := client.Do(r)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					if err := fence.FromResponse(resp); err != nil {
						return "", err
					}
					answer, err := io.ReadAll(resp.Body)
					if err != nil || resp.StatusCode != 200 {
						t.Fatal(resp.Status, err)
					}
					return string(answer), nil
				}
				acknowledged := 0
				add := func(token uint64, read string) error {
					n, err := strconv.Atoi(read)
					if err != nil {
						t.Fatal(err)
					}
					if _, err = call(token, "PUT", strconv.Itoa(n+1)); err == nil {
						acknowledged++
					}
					return err
				}

				read33, err := call(33, "GET", "")
				if err != nil {
					t.Fatal(err)
				}
				read34, err := call(34, "GET", "")
				if err != nil {
					t.Fatal(err)
				}
				var late error
				if lateWriteFirst {
					late = add(33, read33)
				}
				if err := add(34, read34); err != nil {
					t.Fatal(err)
				}
				if !lateWriteFirst {
					late = add(33, read33)
				}

				lost := acknowledged - counter.value
				// Writes-only refuses what comes after the new holder's write, and has the hole before it.
				if g == enterFirst || g == writesOnly && !lateWriteFirst {
					wantStale(t, late, 33, 34)
					if lost != 0 {
						t.Errorf("%d acknowledged updates lost", lost)
					}
				} else if late != nil || lost != 1 {
					t.Errorf("late write: %v, %d lost: the story needs the guard no more", late, lost)
				}
			})
		}
	}
}

// TestHTTPHandlerWindow pins the documented limit, and its remedy: a request that was admitted and is still in the
// handler when a new holder reads.
func TestHTTPHandlerWindow(t *testing.T) {
	for _, remedy := range []bool{false, true} {
		t.Run(fmt.Sprintf("remedy %t", remedy), func(t *testing.T) {
			var front, storage fence.Memory
			value := "old"
			inHandler, resume := make(chan struct{}), make(chan struct{})
			handler := fence.HTTP{Store: &front, Resource: byPath}.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPut {
					close(inHandler)
					<-resume
				}
				access := func() error {
					if r.Method == http.MethodPut {
						value = "late"
					}
					fmt.Fprint(w, value)
					return nil
				}
				if !remedy {
					access()
					return
				}
				admitted, _ := fence.Admitted(r.Context())
				if err := storage.Do(r.Context(), admitted.Resource, admitted.Token, access); err != nil {
					http.Error(w, err.Error(), http.StatusPreconditionFailed)
				}
			}))

			late := make(chan *http.Response)
			go func() { late <- request(t, handler, "PUT", "/a", "", "33") }()
			<-inHandler
			read, _ := io.ReadAll(request(t, handler, "GET", "/a", "", "34").Body)
			if string(read) != "old" {
				t.Fatalf("read %q", read)
			}
			close(resume)
			resp := <-late
			if remedy && (value != "old" || resp.StatusCode != http.StatusPreconditionFailed) {
				t.Errorf("status %d, value %q: written after 34 had read", resp.StatusCode, value)
			}
			if !remedy && value != "late" {
				t.Errorf("value %q: the window the documentation speaks of is gone", value)
			}
		})
	}
}

// roundTripper is a function as http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// closed is a request body that knows whether it was closed.
type closed struct {
	io.Reader
	is bool
}

func (c *closed) Close() error { c.is = true; return nil }

func TestTransport(t *testing.T) {
	var sent *http.Request
	transport := fence.Transport{Header: "X-Token", Base: roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = r
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})}
	r, _ := http.NewRequestWithContext(fence.WithToken(t.Context(), 34), "GET", "http://localhost/", nil)
	r.Header.Set("X-Token", "33")
	if _, err := transport.RoundTrip(r); err != nil {
		t.Fatal(err)
	}
	if got := sent.Header.Values("X-Token"); len(got) != 1 || got[0] != "34" {
		t.Errorf("sent %v, want 34", got)
	}
	if r.Header.Get("X-Token") != "33" {
		t.Error("the caller's request was changed")
	}
	if _, err := transport.RoundTrip(r.WithContext(fence.WithSharedToken(t.Context(), 34))); err != nil || sent.Header.Get("X-Token-Shared") != "true" {
		t.Errorf("%v; sent a reader's token with %v", err, sent.Header)
	}
	r.Header = nil // as one that no http.Client has completed
	if _, err := transport.RoundTrip(r); err != nil || sent.Header.Get("X-Token") != "34" || r.Header != nil {
		t.Errorf("%v; sent %v, want 34", err, sent.Header)
	}

	for name, ctx := range map[string]context.Context{
		"no token":  t.Context(),
		"token 0":   fence.WithToken(t.Context(), 0),
		"too large": fence.WithToken(t.Context(), fence.MaxToken+1),
	} {
		body := &closed{Reader: strings.NewReader("x")}
		r, _ := http.NewRequestWithContext(ctx, "PUT", "http://localhost/", body)
		sent = nil
		if _, err := transport.RoundTrip(r); !errors.Is(err, fence.ErrInvalid) || sent != nil || !body.is {
			t.Errorf("%s: %v, sent %t, body closed %t", name, err, sent != nil, body.is)
		}
	}
}

// TestAdmittedIsNotForwarded pins that a server's outgoing requests do not carry the token it was called with.
func TestAdmittedIsNotForwarded(t *testing.T) {
	ctx, err := fence.Admit(t.Context(), new(fence.Memory), "a", "33")
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := fence.Admitted(ctx); !ok || got != (fence.Admission{Resource: "a", Token: 33}) {
		t.Errorf("Admitted = %v, %t", got, ok)
	}
	r, _ := http.NewRequestWithContext(ctx, "GET", "http://localhost/", nil)
	if _, err := (fence.Transport{}).RoundTrip(r); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}

func TestAdmitRefuses(t *testing.T) {
	var m fence.Memory
	enter(t, &m, "a", 34)
	ctx, err := fence.Admit(t.Context(), &m, "a", "33")
	wantStale(t, err, 33, 34)
	if _, ok := fence.Admitted(ctx); ok {
		t.Error("a refused ctx says admitted")
	}
	for _, c := range [][2]string{{"a", ""}, {"a", "x"}, {"a", "35, 36"}, {"", "35"}} {
		if _, err := fence.Admit(t.Context(), &m, c[0], c[1]); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("Admit(%q, %q) = %v, want ErrInvalid", c[0], c[1], err)
		}
	}
	if _, err := fence.Admit(t.Context(), failingStore{}, "", "35"); !errors.Is(err, fence.ErrInvalid) { // which lets all in
		t.Errorf("no resource: %v, want ErrInvalid", err)
	}
	if _, err := fence.Admit(t.Context(), nil, "a", "35"); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("nil Store: %v, want ErrInvalid", err)
	}
}

func TestFromResponseLeavesOthersAlone(t *testing.T) {
	long := `{"type":"urn:example","detail":"` + strings.Repeat("x", 100<<10) + `"}`
	for _, c := range []struct {
		status            int
		contentType, body string
	}{
		{200, "application/problem+json", `{"type":"urn:redlatch:fence:stale","token":33,"largest":34}`},
		{412, "application/json", `{"type":"urn:redlatch:fence:stale","token":33,"largest":34}`},
		{412, "application/problem+json", `{"type":"urn:somebody:else"}`},
		{412, "application/problem+json", `not JSON`},
		{412, "application/problem+json", long},
		{412, "", ""},
	} {
		resp := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.contentType}}, Body: io.NopCloser(strings.NewReader(c.body))}
		if err := fence.FromResponse(resp); err != nil {
			t.Errorf("%d %s %.30s: %v", c.status, c.contentType, c.body, err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != c.body {
			t.Errorf("%d %s %.30s: the body was changed: %v", c.status, c.contentType, c.body, err)
		}
	}
}

// TestFromResponseKeepsReadErrors pins that a body which broke off does not end as if it were whole.
func TestFromResponseKeepsReadErrors(t *testing.T) {
	resp := &http.Response{
		StatusCode: 412,
		Header:     http.Header{"Content-Type": {"application/problem+json"}},
		Body:       io.NopCloser(iotest.TimeoutReader(strings.NewReader(`{"type":`))), // says so once
	}
	if err := fence.FromResponse(resp); err != nil {
		t.Error(err)
	}
	if body, err := io.ReadAll(resp.Body); err != iotest.ErrTimeout || string(body) != `{"type":` {
		t.Errorf("%q, %v", body, err)
	}
}

// What a server says of its refusal is printable.
func TestFromResponseEscapes(t *testing.T) {
	for kind, status := range map[string]int{"invalid": http.StatusBadRequest, "missing": http.StatusPreconditionRequired, "unavailable": http.StatusServiceUnavailable} {
		resp := &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {"application/problem+json"}},
			Body: io.NopCloser(strings.NewReader(`{"type":"urn:redlatch:fence:` + kind + `","detail":"\u001b[2J\u202egone\nand more"}`)),
		}
		if err := fence.FromResponse(resp); err == nil || !strings.HasSuffix(err.Error(), `: \x1b[2J\u202egone\nand more`) {
			t.Errorf("%s: %q", kind, fmt.Sprint(err))
		}
	}
}
