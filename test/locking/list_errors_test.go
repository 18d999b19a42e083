package locking

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// lookUps are the functions that look up one name.
func lookUps(t *testing.T, c redlatch.Config) map[string]func(name string) error {
	ctx, client := t.Context(), locktest.Open(t, c)
	return map[string]func(name string) error{
		"Waiters":        func(name string) error { return locktest.ErrorOf(redlatch.Waiters(ctx, c, name)) },
		"Readers":        func(name string) error { return locktest.ErrorOf(redlatch.Readers(ctx, c, name)) },
		"Permits":        func(name string) error { _, _, err := redlatch.Permits(ctx, c, name); return err },
		"Client.Waiters": func(name string) error { return locktest.ErrorOf(client.Waiters(ctx, name)) },
		"Client.Permits": func(name string) error { _, _, err := client.Permits(ctx, name); return err },
	}
}

// Of a name that no lock can have nobody is told that nobody waits for it.
func TestLookUpOfNoName(t *testing.T) {
	t.Parallel()
	for what, lookUp := range lookUps(t, locktest.Config(redistest.URLs(locktest.Shared(t, 1))...)) {
		for _, name := range []string{"", strings.Repeat("x", 513), "redlatch:x"} {
			if err := lookUp(name); !errors.Is(err, redlatch.ErrInvalid) {
				t.Errorf("%s of %.12q: %v", what, name, err)
			}
		}
	}
}

// Where the servers refuse the commands, List and the like say ErrRefused, as they are documented, and
// of which name.
func TestRefusedToList(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{Users: []string{"app on >p ~* &* +@all -scan -getrange"}})
	c := locktest.Config(server.URLAs("app", "p"))
	locktest.Await(t, "List says so", func() bool {
		_, _, err := redlatch.List(t.Context(), c, "*")
		return errors.Is(err, redlatch.ErrRefused) && strings.Contains(err.Error(), "scan")
	})
	for what, lookUp := range lookUps(t, c) {
		locktest.Await(t, what+" says so, and of which name", func() bool {
			err := lookUp("job")
			return errors.Is(err, redlatch.ErrRefused) && locktest.FailureOf(t, err).Name == "job"
		})
	}
}

// Another program's key, which the user may not read, does not keep List from the locks, and the node's answer says that there
// is one. A lock that is asked for by its name is told to be forbidden.
func TestListBesideForbiddenKeys(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary, Users: []string{"app on >p ~job* ~redlatch:* &redlatch:wake:* +@all"}})
		c := locktest.Config(server.URLAs("app", "p"))
		locktest.TryLock(t, locktest.Open(t, c), "job/1")
		locktest.Do(t, server, "SET", "session", "secret", "PX", "60000")
		locktest.Await(t, "List has the lock", func() bool {
			locks, nodes, err := redlatch.List(t.Context(), c, "*")
			if errors.Is(err, redlatch.ErrRefused) {
				t.Fatal(err)
			}
			if err == nil && (nodes[0].Verdict != redlatch.VoteGranted || !strings.Contains(fmt.Sprint(nodes[0].Err), "may not read")) {
				t.Errorf("the node's answer is %v", nodes[0])
			}
			return err == nil && len(locks) == 1 && locks[0].Name == "job/1"
		})
		locktest.Await(t, "Waiters says so", func() bool {
			_, err := redlatch.Waiters(t.Context(), c, "session")
			return errors.Is(err, redlatch.ErrRefused) && strings.Contains(err.Error(), "NOPERM")
		})
	})
}

// Who may not ask for the role, or may not read the deployment's record, is told what there is.
func TestListWithoutInfo(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Options{Users: []string{
		"role on >p ~* &* +@all -info", "record on >p ~job ~redlatch:{job}:* &* +@all",
	}})
	locktest.TryLock(t, locktest.Open(t, locktest.Config(server.URL())), "job")
	for _, user := range []string{"role", "record"} {
		locktest.Await(t, "List shows "+user+" the lock", func() bool {
			locks, _, err := redlatch.List(t.Context(), locktest.Config(server.URLAs(user, "p")), "*")
			return err == nil && len(locks) == 1 && locks[0].Name == "job"
		})
	}
}

// A malformed pattern is refused, though KEYS takes it: of the permits' names no pattern would match.
func TestListOfAMalformedPattern(t *testing.T) {
	t.Parallel()
	c := locktest.Config(redistest.URLs(locktest.Shared(t, 1))...)
	_, _, function := redlatch.List(t.Context(), c, "[")
	_, _, method := locktest.Open(t, c).List(t.Context(), "[")
	if !errors.Is(function, redlatch.ErrInvalid) || !errors.Is(method, redlatch.ErrInvalid) {
		t.Errorf("%v; %v", function, method)
	}
}

// The keys of a replica are those of its master: beside that node they do not count once more.
func TestReplicaIsNotListed(t *testing.T) {
	t.Parallel()
	replica := redistest.NewReplica(t, redistest.New(t))
	c := locktest.Config(replica.URL())
	locktest.Await(t, "List says so", func() bool {
		_, _, err := redlatch.List(t.Context(), c, "*")
		return errors.Is(err, redlatch.ErrRefused) && strings.Contains(err.Error(), "name its master")
	})
	for what, lookUp := range lookUps(t, c) {
		locktest.Await(t, what+" says so", func() bool { return errors.Is(lookUp("job"), redlatch.ErrRefused) })
	}
}

// A part of a Cluster that is named as a server of its own has not all locks, and a Sentinel has none: who
// asks them is told how to name them.
func TestMisnamedIsNotListed(t *testing.T) {
	t.Parallel()
	for words, server := range map[string]*redistest.Server{
		"with ?cluster": redistest.New(t, redistest.Options{Args: []string{"--cluster-enabled", "yes"}}),
		"?master_set":   redistest.NewSentinel(t, "main", redistest.New(t), 1),
	} {
		c := locktest.Config(server.URL())
		locktest.Await(t, "List says "+words, func() bool {
			_, answers, err := redlatch.List(t.Context(), c, "*")
			if err == nil {
				t.Fatalf("the locks are listed of what is to be named %s", words)
			}
			return errors.Is(err, redlatch.ErrRefused) && strings.Contains(answers[0].Err.Error(), words)
		})
	}
}

// That the locks of a Cluster are not listed is an answer: waiting does not help.
func TestClusterIsNotListed(t *testing.T) {
	t.Parallel()
	_, answers, err := redlatch.List(t.Context(), redlatch.Config{Nodes: []string{"redis://127.0.0.1:1?cluster"}}, "*")
	if !errors.Is(err, redlatch.ErrRefused) || answers[0].Verdict != redlatch.VoteRefused {
		t.Errorf("%v, %+v", err, answers)
	}
}

// Why a server cannot be connected to by TLS is said, though List waits for an answer for a second only.
func TestListByTLS(t *testing.T) {
	t.Parallel()
	plain := locktest.Config("rediss://" + locktest.Shared(t, 1)[0].Addr())
	locktest.Await(t, "List says that the server has no TLS", func() bool {
		_, answers, err := redlatch.List(t.Context(), plain, "*")
		return errors.Is(err, redlatch.ErrNoQuorum) && strings.Contains(answers[0].Err.Error(), "as a TLS server does")
	})
	stranger := locktest.Config(redistest.New(t, redistest.Options{TLS: true}).URL())
	locktest.Await(t, "List says that the certificate is refused", func() bool {
		_, answers, err := redlatch.List(t.Context(), stranger, "*")
		return errors.Is(err, redlatch.ErrRefused) && strings.Contains(answers[0].Err.Error(), "certificate")
	})
}
