package guardtest

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redlatch/redlatch/fence"
	"github.com/redlatch/redlatch/internal/redistest"
)

func stores() map[string]func(t *testing.T) fence.Store {
	all := map[string]func(t *testing.T) fence.Store{
		"Memory": func(t *testing.T) fence.Store { return new(fence.Memory) },
		"Table on PostgreSQL": func(t *testing.T) fence.Store {
			db := postgresDB(t, "")
			return guardTable(t, db).Store(db)
		},
		"Table on SQLite": func(t *testing.T) fence.Store {
			db := sqliteDB(t, "_pragma=journal_mode(WAL)")
			return guardTable(t, db).Store(db)
		},
	}
	for _, flavor := range redistest.Flavors() {
		all["Redis on "+flavor] = func(t *testing.T) fence.Store {
			return fence.Redis{Eval: goredisEval(goredisClient(t, redistest.New(t, redistest.Options{Binary: flavor})))}
		}
	}
	return all
}

// TestStores pins the contract of Store for each: once a token has been let in, every call that starts afterwards with a
// smaller one is refused and told of at least that token, and what is not sensible is ErrInvalid.
func TestStores(t *testing.T) {
	for name, fresh := range stores() {
		t.Run(name, func(t *testing.T) {
			store := fresh(t)
			for _, c := range []struct {
				resource string
				token    uint64
			}{{"a", 0}, {"a", fence.MaxToken + 1}, {"", 1}} {
				if err := store.Enter(t.Context(), c.resource, c.token); !errors.Is(err, fence.ErrInvalid) {
					t.Errorf("Enter(%q, %d) = %v, want ErrInvalid", c.resource, c.token, err)
				}
			}
			var next, entered atomic.Uint64
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() {
					for range 20 {
						token := next.Add(1)
						floor := entered.Load() // let in before this call starts
						err := store.Enter(t.Context(), "a", token)
						if err == nil {
							if token < floor {
								t.Errorf("%d let in after %d", token, floor)
							}
							for seen := floor; seen < token && !entered.CompareAndSwap(seen, token); seen = entered.Load() {
							}
							continue
						}
						stale, ok := errors.AsType[*fence.StaleError](err)
						if !ok || stale.Token != token || stale.Largest <= token || stale.Largest < floor || stale.Resource != "a" {
							t.Errorf("%d after %d: %v", token, floor, err)
						}
					}
				})
			}
			wg.Wait()
			if entered.Load() == 0 {
				t.Error("nobody was let in")
			}
		})
	}
}

// TestHTTPOverStores pins that any of them can stand behind HTTP.
func TestHTTPOverStores(t *testing.T) {
	for name, fresh := range stores() {
		t.Run(name, func(t *testing.T) {
			guard := fence.HTTP{Store: fresh(t), Resource: func(r *http.Request) string { return r.URL.Path }}
			handler := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				admitted, ok := fence.Admitted(r.Context())
				fmt.Fprint(w, admitted, ok)
			}))
			for _, c := range []struct {
				path          string
				token, status int
			}{{"/a", 33, 200}, {"/a", 34, 200}, {"/a", 34, 200}, {"/a", 33, 412}, {"/b", 33, 200}} {
				r := httptest.NewRequestWithContext(t.Context(), "GET", c.path, nil)
				r.Header.Set(fence.DefaultHeader, strconv.Itoa(c.token))
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				if w.Code != c.status {
					t.Errorf("%s with %d: %d %s, want %d", c.path, c.token, w.Code, w.Body, c.status)
				}
				if c.status == 412 {
					wantStale(t, fence.FromResponse(w.Result()), 33, 34)
				} else if want := fmt.Sprint(fence.Admission{Resource: c.path, Token: uint64(c.token)}, true); w.Body.String() != want {
					t.Errorf("the handler was told %s, want %s", w.Body, want)
				}
			}
		})
	}
}
