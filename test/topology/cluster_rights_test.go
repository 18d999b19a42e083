package topology

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/storm"
)

// A client that may not ask its only address which master has which slot finds all masters once
// it may.
func TestClusterRightToAskComesLater(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary})
		for i, s := range servers {
			locktest.Do(t, s, "ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all")
			if i == 0 {
				locktest.Do(t, s, "ACL", "SETUSER", "u", "-cluster")
			}
		}
		client := locktest.Open(t, locktest.Config(servers[0].URLAs("u", "p")+"?cluster"))
		for i := range servers {
			if _, err := client.TryLock(t.Context(), storm.NameAt(i)); !errors.Is(err, redlatch.ErrRefused) {
				t.Errorf("at master %d: %v, want ErrRefused", i, err)
			}
		}
		locktest.Do(t, servers[0], "ACL", "SETUSER", "u", "+cluster")
		for i := range servers {
			locktest.Await(t, fmt.Sprintf("a lock at master %d", i), func() bool {
				lock, err := client.TryLock(t.Context(), storm.NameAt(i))
				if err == nil {
					locktest.Unlock(t, lock)
				}
				return err == nil
			})
		}
	})
}

// A master whose user may not use a command of the admission says so, and not that its slot is being moved.
func TestClusterAdmissionIsForbidden(t *testing.T) {
	t.Parallel()
	servers := redistest.NewCluster(t, 3, redistest.Options{Users: []string{"u on >p ~* &* +@all -pttl"}})
	client := locktest.Open(t, locktest.Config(servers[0].URLAs("u", "p")+"?cluster"))
	if _, err := client.TryLock(t.Context(), storm.NameAt(0)); !errors.Is(err, redlatch.ErrRefused) {
		t.Errorf("%v, want ErrRefused", err)
	}
}

// A release that comes while the client cannot log in is done when it can again.
func TestClusterReleaseAfterARefusedLogin(t *testing.T) {
	t.Parallel()
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		servers := redistest.NewCluster(t, 3, redistest.Options{Binary: binary, Users: []string{"u on >p ~* &* +@all"}})
		master, name := servers[0], storm.NameAt(0)
		for user, c := range map[string]struct{ url, mended string }{
			"u":       {master.URLAs("u", "p"), ">p"},         // WRONGPASS
			"default": {"redis://" + master.Addr(), "nopass"}, // NOAUTH
		} {
			client := locktest.Open(t, locktest.Config(c.url+"?cluster"))
			lock, err := locktest.AwaitAnswer(t, client, name)
			if err != nil {
				t.Fatal(err)
			}
			locktest.Do(t, master, "ACL", "SETUSER", user, "resetpass", ">other")
			locktest.Do(t, master, "CLIENT", "KILL", "USER", user)
			if err := lock.Unlock(t.Context()); err == nil {
				t.Fatal("it was released")
			}
			locktest.Do(t, master, "ACL", "SETUSER", user, c.mended)
			locktest.AwaitValue(t, master, name, "")
		}
	})
}
