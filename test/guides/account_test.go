package guides

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fence"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// service is one of several processes that serve the same accounts.
type service struct {
	locks    *redlatch.Client
	accounts accounts
}

// accounts is where the balances are kept. It refuses a token that is smaller than one it has
// seen for the account.
type accounts interface {
	add(ctx context.Context, account string, token uint64, amount int) error
}

// deposit serves POST /account/{id}/deposit.
func (s *service) deposit(w http.ResponseWriter, r *http.Request) {
	account := r.PathValue("id")
	amount, err := strconv.Atoi(r.FormValue("amount"))
	if err != nil {
		http.Error(w, "amount is no number", http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second) // for all that are before it
	defer cancel()
	lock, err := s.locks.Lock(ctx, "account/"+account)
	if err != nil { // nothing was done
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the account is busy: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer lock.Unlock(ctx)
	// This ctx ends with the lock, and not when the caller hangs up.
	err = s.accounts.add(lock.Context(), account, lock.Token(), amount)
	switch {
	case errors.Is(err, fence.ErrStale): // the lock was lost, and nothing was written
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case err != nil: // it may have been written or not, as with any write that fails
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// memory is accounts for the tests: in two steps, between which another may come.
type memory struct {
	guard fence.Memory

	mu      sync.Mutex // guards balance
	balance map[string]int
}

func (m *memory) add(ctx context.Context, account string, token uint64, amount int) error {
	if err := m.guard.Enter(ctx, account, token); err != nil {
		return err
	}
	before := m.get(account)
	time.Sleep(time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.balance[account] = before + amount
	return nil
}

func (m *memory) get(account string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.balance[account]
}

func post(t *testing.T, server *httptest.Server, account string) int {
	t.Helper()
	answer, err := server.Client().PostForm(server.URL+"/account/"+account+"/deposit", map[string][]string{"amount": {"1"}})
	if err != nil {
		t.Error(err)
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

func (s *service) start(t *testing.T) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /account/{id}/deposit", s.deposit)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// Deposits to one account by way of two processes follow one another, and none is lost. A deposit
// to another account does not wait for them.
func TestDeposits(t *testing.T) {
	t.Parallel()
	c := locktest.Config(redistest.URLs(locktest.Shared(t, 3))...)
	kept := &memory{balance: make(map[string]int)}
	one, two := &service{locktest.Open(t, c), kept}, &service{locktest.Open(t, c), kept}
	servers := []*httptest.Server{one.start(t), two.start(t)}

	// Of these the account "busy" waits all the time.
	busy := locktest.TryLock(t, one.locks, "account/busy")
	var other sync.WaitGroup
	other.Go(func() {
		if status := post(t, servers[1], "busy"); status != http.StatusServiceUnavailable {
			t.Errorf("an account that is not to be had in time: %d", status)
		}
	})
	var all sync.WaitGroup
	var mu sync.Mutex // guards added
	added := make(map[string]int)
	for i := range 40 {
		all.Go(func() {
			account := fmt.Sprint(i % 2)
			if post(t, servers[i/2%2], account) == http.StatusOK {
				mu.Lock()
				added[account]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for account, want := range added {
		if got := kept.get(account); got != want {
			t.Errorf("account %s: %d deposits were confirmed, and it has %d", account, want, got)
		}
	}
	if added["0"] == 0 || added["1"] == 0 {
		t.Errorf("confirmed: %v", added)
	}
	other.Wait()
	locktest.Unlock(t, busy)
}

// A holder that lost its lock and does not know it yet is refused.
func TestDepositByAFormerHolder(t *testing.T) {
	t.Parallel()
	client := locktest.Open(t, locktest.Config(redistest.URLs(locktest.Shared(t, 3))...))
	kept := &memory{balance: make(map[string]int)}
	first := locktest.TryLock(t, client, "account/late")
	locktest.Unlock(t, first)
	second := locktest.TryLock(t, client, "account/late")
	if err := kept.add(t.Context(), "late", second.Token(), 1); err != nil {
		t.Fatal(err)
	}
	if err := kept.add(t.Context(), "late", first.Token(), 1); !errors.Is(err, fence.ErrStale) || kept.get("late") != 1 {
		t.Errorf("%v, and the account has %d", err, kept.get("late"))
	}
	locktest.Unlock(t, second)
}
