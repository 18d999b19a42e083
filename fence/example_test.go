package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/redlatch/redlatch/fence"
)

// Client 1 holds the lock with token 33 and is paused. Client 2 gets the lock, with token 34.
func ExampleMemory() {
	ctx := context.Background()
	var guard fence.Memory
	balance := 100

	add := func(token uint64, amount int) error {
		return guard.Do(ctx, "account:42", token, func() error {
			balance += amount
			return nil
		})
	}
	fmt.Println(add(33, 10))
	fmt.Println(add(34, 20))
	fmt.Println(add(33, 10)) // client 1 wakes up
	fmt.Println(balance)
	// Output:
	// <nil>
	// <nil>
	// fence: stale token: 33 for "account:42", which has seen 34: a later holder has the lock
	// 130
}

func ExampleMemory_Enter() {
	ctx := context.Background()
	var guard fence.Memory

	// On the first access, before anything is read.
	if err := guard.Enter(ctx, "device:7", 34); err != nil {
		fmt.Println(err)
	}
	err := guard.Enter(ctx, "device:7", 33)
	if stale, ok := errors.AsType[*fence.StaleError](err); ok {
		fmt.Printf("refused %d, has seen %d\n", stale.Token, stale.Largest)
	}
	// Output: refused 33, has seen 34
}

func ExampleHTTP() {
	account := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		admitted, _ := fence.Admitted(r.Context()) // for the transaction that writes
		fmt.Fprintf(w, "%s %s with token %d", r.Method, admitted.Resource, admitted.Token)
	})
	guard := fence.HTTP{
		Store:    new(fence.Memory),
		Resource: func(r *http.Request) string { return "account:" + r.PathValue("id") },
	}
	mux := http.NewServeMux()
	mux.Handle("/account/{id}", guard.Handler(account))

	for _, token := range []uint64{33, 34, 33, 0} {
		r := httptest.NewRequest("GET", "/account/42", nil)
		if token != 0 {
			fence.SetHeader(r.Header, token)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 GET account:42 with token 33
	// 200 GET account:42 with token 34
	// 412 {"type":"urn:redlatch:fence:stale","title":"Stale fencing token","status":412,"detail":"fence: stale token: 33 for \"account:42\", which has seen 34: a later holder has the lock","resource":"account:42","token":33,"largest":34}
	// 428 {"type":"urn:redlatch:fence:missing","title":"Fencing token required","status":428,"detail":"the header Redlatch-Fencing-Token is missing: send the fencing token of the lock you hold"}
}

func ExampleTransport() {
	guard := fence.HTTP{Store: new(fence.Memory), Resource: func(*http.Request) string { return "account:42" }}
	server := httptest.NewServer(guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})))
	defer server.Close()

	client := &http.Client{Transport: fence.Transport{}}
	get := func(token uint64) error {
		ctx := fence.WithToken(context.Background(), token)
		r, err := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return fence.FromResponse(resp)
	}
	fmt.Println(get(34))
	fmt.Println(errors.Is(get(33), fence.ErrStale))
	// Output:
	// <nil>
	// true
}

func ExampleAdmit() {
	store := new(fence.Memory)
	for _, token := range []string{"34", "33", ""} {
		ctx, err := fence.Admit(context.Background(), store, "account:42", token)
		_, ok := fence.Admitted(ctx)
		fmt.Println(ok, err)
	}
	// Output:
	// true <nil>
	// false fence: stale token: 33 for "account:42", which has seen 34: a later holder has the lock
	// false fence: invalid argument: token "": want a decimal number from 1 to 9007199254740991
}

func ExampleTable_Do() {
	var (
		ctx   context.Context // the lock's: done when the lock is lost
		db    *sql.DB
		token uint64 // the lock's
	)
	guard := fence.Table{}
	if err := guard.Create(ctx, db); err != nil {
		panic(err)
	}
	err := guard.Do(ctx, db, "account:42", token, func(tx *sql.Tx) error {
		var balance int
		if err := tx.QueryRowContext(ctx, "SELECT balance FROM account WHERE id = 42").Scan(&balance); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = $1 WHERE id = 42", balance+10)
		return err
	})
	if errors.Is(err, fence.ErrStale) {
		fmt.Println("the lock is lost, nothing was written:", err)
	}
}

func ExampleColumn_Do() {
	var (
		ctx   context.Context // the lock's: done when the lock is lost
		db    *sql.DB
		token uint64 // the lock's
	)
	guard := fence.Column{Table: "account"} // with the columns id and fencing_token
	err := guard.Do(ctx, db, 42, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + 10 WHERE id = 42")
		return err
	})
	if errors.Is(err, fence.ErrStale) {
		fmt.Println("the lock is lost, nothing was written:", err)
	}
}

func ExampleRedis_Open() {
	var (
		ctx   context.Context
		eval  fence.Eval // three lines, see there
		token uint64     // the lock's
	)
	guard := fence.Redis{Eval: eval}
	account, err := guard.Open(ctx, "account:42", token)
	if err != nil {
		fmt.Println("the lock is lost, or no answer:", err)
		return
	}
	value, _, err := account.Get(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := account.Set(ctx, value+"+", 0); errors.Is(err, fence.ErrStale) {
		fmt.Println("the lock is lost, nothing was written:", err)
	}
}
