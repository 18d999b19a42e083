package guardtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/fence"
	"github.com/redlatch/redlatch/internal/redistest"
)

// balance is what is there before any client comes.
const balance = 100

// A place is a resource that several processes can open.
type place struct {
	// prepare makes the resource, with its balance, for one test and returns the address that open takes.
	prepare func(t *testing.T) string
	open    func(address string) (resource, io.Closer, error)
}

// places is each guard, in front of something that outlives the processes it guards against.
func places() map[string]place {
	all := map[string]place{
		"Redis/string": redisPlace(func(r redisString) resource { return r }),
		"Redis/hash":   redisPlace(func(r redisString) resource { return redisHash{r} }),
		"HTTP":         {prepare: serveAccount, open: openAccount},
	}
	databases := map[string]place{
		"PostgreSQL": {prepare: preparePostgres, open: func(dsn string) (resource, io.Closer, error) {
			db, err := sql.Open("pgx", dsn)
			return sqlResource{db: db}, db, err
		}},
		"SQLite": {prepare: prepareSQLite, open: func(path string) (resource, io.Closer, error) {
			db, err := openSQLite(path, sqliteWAL)
			return sqlResource{db: db}, db, err
		}},
	}
	for name, database := range databases {
		all["Table/"+name] = database.guardedBy(func(db *sql.DB) sqlGuard {
			return func(ctx context.Context, token uint64, fn func(*sql.Tx) error) error {
				return fence.Table{}.Do(ctx, db, "account:42", token, fn)
			}
		})
		all["Column/"+name] = database.guardedBy(func(db *sql.DB) sqlGuard {
			return func(ctx context.Context, token uint64, fn func(*sql.Tx) error) error {
				return fence.Column{Table: "account"}.Do(ctx, db, 42, token, fn)
			}
		})
	}
	return all
}

// sqlGuard is how a sqlResource enters.
type sqlGuard func(ctx context.Context, token uint64, fn func(*sql.Tx) error) error

// guardedBy adds the guard to a place of a sqlResource without one.
func (p place) guardedBy(guard func(*sql.DB) sqlGuard) place {
	return place{p.prepare, func(address string) (resource, io.Closer, error) {
		r, closer, err := p.open(address)
		if err != nil {
			return nil, nil, err
		}
		account := r.(sqlResource)
		account.do = guard(account.db)
		return account, closer, nil
	}}
}

// makeAccount makes the row 42, and the guard table beside it.
func makeAccount(t *testing.T, db *sql.DB) {
	t.Helper()
	exec(t, db, "CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, fencing_token BIGINT)",
		fmt.Sprintf("INSERT INTO account (id, balance) VALUES (42, %d)", balance))
	guardTable(t, db)
}

func preparePostgres(t *testing.T) string {
	db := postgresDB(t, "")
	makeAccount(t, db)
	var schema string
	if err := db.QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&schema); err != nil {
		t.Fatal(err)
	}
	server, err := postgres()
	if err != nil {
		t.Fatal(err)
	}
	return server.dsn() + " search_path=" + schema
}

const sqliteWAL = "_pragma=journal_mode(WAL)"

func prepareSQLite(t *testing.T) string {
	path := t.TempDir() + "/test.db"
	db, err := openSQLite(path, sqliteWAL)
	makeAccount(t, adopt(t, db, err))
	return path
}

// redisPlace is the key account:42 of a server of its own, as the type that as makes of it.
func redisPlace(as func(redisString) resource) place {
	open := func(address string) (resource, io.Closer, error) {
		client := goredis.NewClient(&goredis.Options{Addr: address})
		plain := func(ctx context.Context, args ...any) (any, error) { return client.Do(ctx, args...).Result() }
		return as(redisString{fence.Redis{Eval: goredisEval(client)}, plain}), client, nil
	}
	return place{open: open, prepare: func(t *testing.T) string {
		address := redistest.New(t).Addr()
		r, closer, err := open(address)
		if err != nil {
			t.Fatal(err)
		}
		defer closer.Close()
		if err := r.write(t.Context(), 0, false, balance); err != nil {
			t.Fatal(err)
		}
		return address
	}}
}

// serveAccount serves a balance that lives in this process: at /account/42 behind the guard, at /plain/42 around it.
func serveAccount(t *testing.T) string {
	var value atomic.Int64
	value.Store(balance)
	account := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprint(w, value.Load())
			return
		}
		body, err := io.ReadAll(r.Body)
		n, atoiErr := strconv.Atoi(string(body))
		if err := errors.Join(err, atoiErr); err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		value.Store(int64(n))
	})
	guard := fence.HTTP{
		Store:    new(fence.Memory),
		Resource: func(r *http.Request) string { return "account:" + r.PathValue("id") },
	}
	mux := http.NewServeMux()
	mux.Handle("/account/{id}", guard.Handler(account))
	mux.Handle("/plain/{id}", account)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// httpAccount is that server as its clients see it.
type httpAccount struct {
	url       string
	transport *http.Transport
}

func openAccount(url string) (resource, io.Closer, error) {
	a := httpAccount{url, new(http.Transport)}
	return a, a, nil
}

func (a httpAccount) Close() error {
	a.transport.CloseIdleConnections()
	return nil
}

func (a httpAccount) read(ctx context.Context, token uint64, guarded bool) (int, error) {
	body, err := a.do(ctx, http.MethodGet, token, guarded, "")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(body)
}

func (a httpAccount) write(ctx context.Context, token uint64, guarded bool, value int) error {
	_, err := a.do(ctx, http.MethodPut, token, guarded, strconv.Itoa(value))
	return err
}

func (a httpAccount) do(ctx context.Context, method string, token uint64, guarded bool, body string) (string, error) {
	client, url := http.Client{Transport: a.transport}, a.url+"/plain/42"
	if guarded {
		client.Transport, url = fence.Transport{Base: a.transport}, a.url+"/account/42"
		ctx = fence.WithToken(ctx, token)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if err := fence.FromResponse(response); err != nil {
		return "", err
	}
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return string(text), err
}
