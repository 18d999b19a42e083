package guardtest

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/redlatch/redlatch/internal/redistest"
)

var seedFlag = flag.Uint64("seed", 0, "replay random tests with this seed; 0 takes a new one")

func newSeed(t *testing.T) uint64 {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay with -args -seed=%d", seed)
	return seed
}

// The servers that tests and examples share, each started by the first that asks.
var (
	postgres = sync.OnceValues(startPostgres)
	redisSrv = sync.OnceValues(func() (*redistest.Server, error) {
		server, err := redistest.Start(context.Background(), redistest.Options{})
		if err == nil {
			atExit(server.Close)
		}
		return server, err
	})
	started []func() error // what stops them
	mu      sync.Mutex     // guards started; held to append only
)

func atExit(stop func() error) {
	mu.Lock()
	defer mu.Unlock()
	started = append(started, stop)
}

func TestMain(m *testing.M) {
	if assignment := os.Getenv(taskEnv); assignment != "" {
		os.Exit(stoppedClient(assignment))
	}
	flag.Set("test.parallel", "16") // the parallel tests mostly wait for a TTL; the command line goes before it
	code := m.Run()
	for _, stop := range started {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping a server:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// schemas numbers the schemas that keep tests apart on the one PostgreSQL server.
var schemas atomic.Int64

// openPostgres opens a pool on a schema of its own. The settings are further ones of the connection string.
func openPostgres(settings string) (*sql.DB, error) {
	server, err := postgres()
	if err != nil {
		return nil, err
	}
	schema := fmt.Sprintf("s%d", schemas.Add(1))
	db, err := sql.Open("pgx", fmt.Sprintf("%s search_path=%s %s", server.dsn(), schema, settings))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(12)
	db.SetMaxIdleConns(12)
	if _, err := db.Exec("CREATE SCHEMA " + schema); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// openSQLite opens a pool on the database file at path. Without the busy timeout a connection that finds another one
// writing fails at once.
func openSQLite(path, settings string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(30000)&"+settings)
}

// postgresDB and sqliteDB are the same for a test.
func postgresDB(t *testing.T, settings string) *sql.DB {
	t.Helper()
	db, err := openPostgres(settings)
	return adopt(t, db, err)
}

func sqliteDB(t *testing.T, settings string) *sql.DB {
	t.Helper()
	db, err := openSQLite(t.TempDir()+"/test.db", settings)
	adopt(t, db, err)
	// One connection first: where several are the first to set the file's journal mode, SQLite refuses some at once.
	if err := db.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db
}

func adopt(t *testing.T, db *sql.DB, err error) *sql.DB {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// exec runs statements that must not fail.
func exec(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}
