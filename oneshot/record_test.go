package oneshot_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/oneshot"
)

// Where the record says that the quarantine is on, a client without it gets no vote from a server that restarted; but
// one whose user may not read the record does. The page with what there is only a word for says so.
func TestUserWhoMayNotReadTheRecord(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/restarts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, risks, _ := strings.Cut(string(page), "## What there is only your word for")
	locktest.EachFlavor(t, func(t *testing.T, binary string) {
		server := redistest.New(t, redistest.Options{Binary: binary, Users: []string{
			"few on >secret ~job* -@all +set +get", "more on >secret ~job* ~redlatch:* -@all +set +get"}})
		config := locktest.WithQuarantine(server.URL())
		locks := locktest.Open(t, config)
		locktest.Vouch(t, locks, "n0")
		locktest.Do(t, server, "SAVE")
		held := locktest.TryLock(t, locks, "job", redlatch.WithoutRenewal())
		locktest.KillAndRestart(t, server)
		config.NoQuarantine = true
		take := func(user string) (taken bool, err error) {
			client := newCaller(t, locktest.Through(config, server.URLAs(user, "secret")), oneshot.CommandsNative)
			locktest.Await(t, "an answer", func() bool {
				taken, err = client.Take(t.Context(), "job", user, time.Second)
				return !locktest.Late(err)
			})
			return taken, err
		}
		if taken, err := take("more"); taken || !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("a user who may read it: %t, %v", taken, err)
		}
		if taken, _ := take("few"); taken && held.Err() == nil && !strings.Contains(risks, "may not read the record") {
			t.Error("a second holder, and docs/restarts.md does not say that it is possible")
		}
	})
}
