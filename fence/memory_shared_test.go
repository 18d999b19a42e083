package fence_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/redlatch/redlatch/fence"
)

func enterShared(t *testing.T, s fence.SharedStore, resource string, token uint64) {
	t.Helper()
	if err := s.EnterShared(t.Context(), resource, token); err != nil {
		t.Fatal(err)
	}
}

func TestMemoryShared(t *testing.T) {
	var m fence.Memory
	enterShared(t, &m, "a", 35) // nobody has been there
	enterShared(t, &m, "a", 33) // readers do not refuse each other
	enterShared(t, &m, "a", 35)
	wantStale(t, m.Enter(t.Context(), "a", 34), 34, 35)
	enterShared(t, &m, "a", 33) // nor does a writer who was refused
	enter(t, &m, "a", 36)
	wantStale(t, m.EnterShared(t.Context(), "a", 35), 35, 36)
	enterShared(t, &m, "a", 39)
	wantStale(t, m.EnterShared(t.Context(), "a", 35), 35, 36)
	enterShared(t, &m, "a", 37)
	wantStale(t, m.Enter(t.Context(), "a", 38), 38, 39)
	enter(t, &m, "a", 40)
	wantStale(t, m.EnterShared(t.Context(), "a", 39), 39, 40)
	if err := m.Prune(50); err != nil {
		t.Fatal(err)
	}
	wantStale(t, m.EnterShared(t.Context(), "b", 49), 49, 50)
	enterShared(t, &m, "b", 51)
	enterShared(t, &m, "b", 50)
	m.Forget("b")
	if m.Len() != 0 {
		t.Errorf("Len = %d", m.Len())
	}
	for _, token := range []uint64{0, fence.MaxToken + 1} {
		if err := m.EnterShared(t.Context(), "b", token); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%d: %v", token, err)
		}
	}
}

// Readers run together, and a writer neither beside them nor they beside it.
func TestMemoryDoShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m fence.Memory
		inside, finish := new(atomic.Int32), make(chan struct{})
		ended := make(chan error, 10)
		read := func(ctx context.Context, token uint64) {
			ended <- m.DoShared(ctx, "a", token, func() error { inside.Add(1); <-finish; inside.Add(-1); return nil })
		}
		await := func(n int32) {
			t.Helper()
			synctest.Wait()
			if got := inside.Load(); got != n {
				t.Fatalf("%d are inside, want %d", got, n)
			}
		}
		go read(t.Context(), 33)
		go read(t.Context(), 35)
		await(2)
		wrote := make(chan error, 1)
		go func() {
			wrote <- m.Do(t.Context(), "a", 36, func() error {
				if n := inside.Load(); n != 0 {
					t.Errorf("a writer beside %d readers", n)
				}
				<-finish
				return nil
			})
		}()
		synctest.Wait()
		wantStale(t, m.EnterShared(t.Context(), "a", 35), 35, 36) // it has been announced, though it waits
		finish <- struct{}{}
		await(1)
		finish <- struct{}{}
		await(0) // the writer has its turn
		go read(t.Context(), 37)
		await(0)
		lost := errors.New("lock lost") // for one that waits behind a reader that waits
		ctx, cancel := context.WithCancelCause(t.Context())
		go read(ctx, 39)
		await(0)
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		cancel(lost)
		if err := <-ended; !errors.Is(err, lost) {
			t.Errorf("got %v, want the cause", err)
		}
		close(finish)
		if err := <-wrote; err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		m.Forget("a")
		if m.Len() != 0 {
			t.Errorf("Len = %d: a user was counted in and never out", m.Len())
		}
	})
}

// A reader that a later writer has overtaken while it waited is refused.
func TestMemorySharedOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m fence.Memory
		finish := make(chan struct{})
		ended := make(chan error, 2)
		go func() { ended <- m.Do(t.Context(), "a", 32, func() error { <-finish; return nil }) }()
		synctest.Wait()
		reader := make(chan error, 1)
		go func() {
			reader <- m.DoShared(t.Context(), "a", 33, func() error { t.Error("33 ran after 34 was announced"); return nil })
		}()
		synctest.Wait()
		go func() { ended <- m.Enter(t.Context(), "a", 34) }()
		synctest.Wait()
		close(finish)
		wantStale(t, <-reader, 33, 34)
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// FuzzMemoryShared compares histories of readers and writers with the rule. A writer's token is even, a reader's odd.
func FuzzMemoryShared(f *testing.F) {
	f.Add([]byte{4, 5, 7, 5, 6, 8, 7, 9})
	rng := rand.New(rand.NewPCG(1, 2))
	long := make([]byte, 200)
	for i := range long {
		long[i] = byte(rng.IntN(256))
	}
	f.Add(long)
	f.Fuzz(func(t *testing.T, tokens []byte) {
		var m fence.Memory
		var writer, largest uint64
		for i, token := range tokens {
			token := uint64(token) + 1
			enter, smallest := m.Enter, largest
			if token%2 == 1 {
				enter, smallest = m.EnterShared, writer
			}
			err := enter(t.Context(), "a", token)
			if want := token < smallest; want != errors.Is(err, fence.ErrStale) {
				t.Fatalf("%v: token %d, after %d of all and %d of writers: %v", tokens[:i+1], token, largest, writer, err)
			}
			if err != nil {
				wantStale(t, err, token, smallest)
				continue
			}
			largest = max(largest, token)
			if token%2 == 0 {
				writer = token
			}
		}
	})
}

// A floor that rises while readers are inside refuses readers below it as well.
func TestMemoryPruneWhileRead(t *testing.T) {
	var m fence.Memory
	if err := m.DoShared(t.Context(), "a", 33, func() error { return m.Prune(91) }); err != nil {
		t.Fatal(err)
	}
	err := m.DoShared(t.Context(), "a", 95, func() error {
		if err := m.Prune(99); err != nil {
			return err
		}
		return m.EnterShared(t.Context(), "a", 98)
	})
	wantStale(t, err, 98, 99)
}

// A token that is sent as a reader's is entered as one, but not to write.
func TestHTTPShared(t *testing.T) {
	var m fence.Memory
	var got fence.Admission
	guard := fence.HTTP{Store: &m, Resource: func(*http.Request) string { return "a" }}
	server := httptest.NewServer(guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got, _ = fence.Admitted(r.Context())
	})))
	defer server.Close()
	client := http.Client{Transport: fence.Transport{}}
	with := map[bool]func(context.Context, uint64) context.Context{false: fence.WithToken, true: fence.WithSharedToken}
	for _, c := range []struct {
		method string
		token  uint64
		shared bool
		want   error
	}{
		{"GET", 35, true, nil}, {"GET", 33, true, nil}, {"GET", 34, false, fence.ErrStale}, {"POST", 36, true, fence.ErrInvalid},
		{"POST", 36, false, nil}, {"GET", 35, true, fence.ErrStale}, {"HEAD", 37, true, nil},
	} {
		r, err := http.NewRequestWithContext(with[c.shared](t.Context(), c.token), c.method, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(fence.DefaultHeader+"-Shared", "true") // which the Transport replaces
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		err = fence.FromResponse(resp)
		resp.Body.Close()
		if c.want == nil && err != nil || !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c, err)
		}
		if want := (fence.Admission{Resource: "a", Token: c.token, Shared: c.shared}); c.want == nil && got != want {
			t.Errorf("the handler was told %+v, want %+v", got, want)
		}
	}
	for method, writes := range map[string]bool{
		"GET": false, "HEAD": false, "OPTIONS": false, "TRACE": false, "QUERY": false, "POST": true, "PUT": true, "PATCH": true, "DELETE": true,
	} {
		for value, reads := range map[string]bool{"true": true, "false": false, "1": false} {
			r := httptest.NewRequest(method, "/", nil)
			r.Header.Set(fence.DefaultHeader, "37")
			r.Header.Set(fence.DefaultHeader+"-Shared", value)
			w := httptest.NewRecorder()
			fence.HTTP{Store: new(fence.Memory), Resource: guard.Resource}.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				got, _ = fence.Admitted(r.Context())
			})).ServeHTTP(w, r)
			switch {
			case reads && writes && w.Code != http.StatusBadRequest:
				t.Errorf("a reader's token with %s: %d", method, w.Code)
			case !(reads && writes) && (w.Code != http.StatusOK || got.Shared != reads):
				t.Errorf("%s with a token that is a reader's, %s: %d, %+v", method, value, w.Code, got)
			}
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	fence.SetSharedHeader(r.Header, 39)
	w := httptest.NewRecorder()
	guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
	fence.SetHeader(r.Header, 38)
	stale := httptest.NewRecorder()
	guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("38 after 39") })).ServeHTTP(stale, r)
	if w.Code != 200 || stale.Code != 412 || !strings.Contains(stale.Body.String(), "38") {
		t.Errorf("%d, %d %s", w.Code, stale.Code, stale.Body)
	}
}

// writersOnly is a Store that knows of no readers.
type writersOnly struct{ fence.Store }

// A guard that knows of no readers refuses more of them, and lets none in wrongly.
func TestAdmitShared(t *testing.T) {
	var m, n fence.Memory
	for _, c := range []struct {
		store  fence.Store
		second error
	}{{&m, nil}, {writersOnly{&n}, fence.ErrStale}} {
		ctx, err := fence.AdmitShared(t.Context(), c.store, "a", "35")
		if a, _ := fence.Admitted(ctx); err != nil || a != (fence.Admission{Resource: "a", Token: 35, Shared: true}) {
			t.Errorf("%+v, %v", a, err)
		}
		if _, err := fence.AdmitShared(t.Context(), c.store, "a", "33"); !errors.Is(err, c.second) {
			t.Errorf("%T: %v, want %v", c.store, err, c.second)
		}
		if _, err := fence.Admit(t.Context(), c.store, "a", "34"); !errors.Is(err, fence.ErrStale) {
			t.Errorf("%T: %v", c.store, err)
		}
	}
}

// What is forgotten while somebody is inside refuses no reader either.
func TestMemoryForgetWhileRead(t *testing.T) {
	var m fence.Memory
	enter(t, &m, "a", 9)
	err := m.DoShared(t.Context(), "a", 10, func() error {
		m.Forget("a")
		return m.EnterShared(t.Context(), "a", 5)
	})
	if err != nil {
		t.Error(err)
	}
}
