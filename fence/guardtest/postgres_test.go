package guardtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// postgresServer is a PostgreSQL server that listens on a Unix socket in a directory of its own and on nothing else.
type postgresServer struct {
	dir    string
	cmd    *osexec.Cmd
	exited chan struct{} // closed once cmd has been waited for
}

// postgresBin finds the directory of initdb and postgres.
func postgresBin() (string, error) {
	if dir := os.Getenv("GUARDTEST_POSTGRES"); dir != "" {
		return dir, nil
	}
	if path, err := osexec.LookPath("initdb"); err == nil {
		// initdb looks for postgres beside itself, not beside a link to it.
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.New("no PostgreSQL found (remedy: apt-get install postgresql, or name the directory of initdb and postgres in GUARDTEST_POSTGRES)")
	}
	return filepath.Dir(slices.Max(found)), nil
}

// startPostgres starts the server and blocks until it answers, for half a minute at most. TestMain stops it.
func startPostgres() (*postgresServer, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "guardtest-") // short: a Unix socket's path has room for some 100 bytes
	if err != nil {
		return nil, err
	}
	s := &postgresServer{dir: dir, exited: make(chan struct{})}
	atExit(s.stop)
	attr, err := postgresAttr(dir)
	if err != nil {
		return nil, err
	}
	command := func(name string, args ...string) *osexec.Cmd {
		cmd := osexec.Command(filepath.Join(bin, name), args...)
		cmd.Dir, cmd.SysProcAttr = dir, attr
		cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
		return cmd
	}
	initdb := command("initdb", "-D", dir+"/data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	log, err := os.Create(dir + "/log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := command("postgres", "-D", dir+"/data", "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off",
		"-c", "max_connections=200", "-c", "shared_buffers=16MB", "-c", "deadlock_timeout=100ms")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.cmd = cmd
	go func() {
		cmd.Wait()
		close(s.exited)
	}()
	if err := s.awaitReady(); err != nil {
		text, _ := os.ReadFile(dir + "/log")
		return nil, fmt.Errorf("postgres: %w\n%s", err, text)
	}
	return s, nil
}

func (s *postgresServer) awaitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	db, err := sql.Open("pgx", s.dsn())
	if err != nil {
		return err
	}
	defer db.Close()
	for {
		if err = db.PingContext(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-s.exited:
			return errors.New("has ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *postgresServer) dsn() string { return "host=" + s.dir + " user=postgres dbname=postgres" }

// stop ends the server in order, or kills it after half a minute, and removes its directory.
func (s *postgresServer) stop() error {
	var err error
	if s.cmd != nil {
		// SIGINT is PostgreSQL's fast shutdown: it does not wait for clients.
		if err = s.cmd.Process.Signal(syscall.SIGINT); errors.Is(err, os.ErrProcessDone) {
			err = errors.New("postgres ended before it was stopped")
		}
		select {
		case <-s.exited:
		case <-time.After(30 * time.Second):
			err = errors.Join(err, errors.New("postgres did not stop"), s.cmd.Process.Kill())
			<-s.exited
		}
	}
	if err != nil {
		text, _ := os.ReadFile(s.dir + "/log")
		err = fmt.Errorf("%w\n%s", err, strings.TrimSpace(string(text)))
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
