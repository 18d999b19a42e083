package restart

import (
	"os"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// copyTo defines a function that copies all keys to another database.
const copyTo = `local function copy(db)
  for _, key in ipairs(redis.call('KEYS', '*')) do
    redis.call('COPY', key, key, 'DB', db)
  end
end
`

// A server that is set back to an earlier state of its memory is the same run, and does not show that it
// has forgotten locks: the page with what there is only a word for says so.
func TestServerSetBack(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/restarts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, risks, _ := strings.Cut(string(page), "## What there is only your word for")
	for said, set := range map[string]struct{ aside, back []string }{
		"a virtual machine to a snapshot":          {[]string{"SAVE"}, []string{"DEBUG", "RELOAD", "NOSAVE"}}, // as near as a test comes to it
		"by `SWAPDB` there and back":               {[]string{"SWAPDB", "0", "1"}, []string{"SWAPDB", "0", "1"}},
		"in which the deployment was used as well": {[]string{"EVAL", copyTo + "copy(1)", "0"}, []string{"SWAPDB", "0", "1"}},
		"replaced by an older copy":                {[]string{"EVAL", copyTo + "copy(1)", "0"}, []string{"EVAL", copyTo + "redis.call('FLUSHDB') redis.call('SELECT', 1) copy(0)", "0"}},
	} {
		t.Run(said, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t, redistest.Options{Args: []string{"--enable-debug-command", "yes"}})
			c := locktest.WithQuarantine(server.URL())
			one, two := locktest.Open(t, c), locktest.Open(t, c)
			locktest.Vouch(t, one, "n0")
			locktest.Unlock(t, locktest.TryLock(t, one, "before"))
			locktest.Do(t, server, set.aside...)
			lock, err := one.Lock(locktest.Within(t, locktest.RestartQuarantine+locktest.Patience), "job")
			if err != nil {
				t.Fatal(err)
			}
			locktest.Do(t, server, set.back...)
			_, err = locktest.TryInTime(t, two, "job")
			if err == nil && lock.Err() == nil && !strings.Contains(risks, said) {
				t.Errorf("a second holder, and docs/restarts.md does not say that it is possible where a server is set back, %s", said)
			}
		})
	}
}

// A server restarts with data from before a change of its deployment: it has the word of the former record, and of the
// clients that go by that, for how long its locks lasted. The page says so.
func TestRestartFromBeforeAChange(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	small := locktest.WithQuarantine(server.URL())
	former := locktest.Open(t, small)
	locktest.Vouch(t, former, "n0")
	locktest.Do(t, server, "SAVE")
	client := locktest.Open(t, locktest.WithMaxTTL(small, locktest.TTL))
	if err := client.Reset(t.Context(), "n0"); err != nil {
		t.Fatal(err)
	}
	locktest.Vouch(t, client, "n0")
	held := locktest.TryLock(t, client, "x", redlatch.WithoutRenewal())
	locktest.KillAndRestart(t, server)
	_, err := former.Lock(locktest.Within(t, locktest.RestartQuarantine+locktest.Patience), "x")
	page, failure := os.ReadFile("../../docs/restarts.md")
	if failure != nil {
		t.Fatal(failure)
	}
	_, risks, _ := strings.Cut(string(page), "## What there is only your word for")
	if err == nil && held.Err() == nil && !strings.Contains(risks, "a record from before a change") {
		t.Error("a second holder, and docs/restarts.md does not say that it is possible where a server restarts with a record from before a change")
	}
}

// A majority of the nodes forgets a change to a shorter MaxTTL, with its record: the others tell it the new settings, and nobody the
// old ones. Or a majority restarts with the record from before a change to a longer MaxTTL, and the others cannot be asked. The page
// says both.
func TestMajorityForgetsAChange(t *testing.T) {
	t.Parallel()
	_, risks, _ := strings.Cut(restartsPage(t), "## What there is only your word for")
	for said, longer := range map[string]bool{
		"| A node forgets a change of the deployment":        false,
		"or a majority was, and the others cannot be asked:": true,
	} {
		t.Run(said, func(t *testing.T) {
			t.Parallel()
			nodes := redistest.Nodes(t, 3)
			small := locktest.WithQuarantine(redistest.URLs(nodes)...)
			large := locktest.WithMaxTTL(small, locktest.TTL)
			before, after := locktest.Open(t, large), locktest.Open(t, small)
			if longer {
				before, after = after, before
			}
			locktest.Vouch(t, before, small.Nodes...)
			change := func() {
				reset(t, after, small.Nodes...)
			}
			var held *redlatch.Lock
			next := after
			if longer { // the lock is held under the settings of after the change
				for _, s := range nodes[:2] {
					locktest.Do(t, s, "SAVE")
				}
				change()
				locktest.Vouch(t, after, small.Nodes...)
				held, next = locktest.TryLock(t, after, "x", redlatch.WithoutRenewal()), before
				nodes[2].Pause()
			} else {
				held = locktest.TryLock(t, before, "x", redlatch.WithoutRenewal())
				change()
			}
			for _, s := range nodes[:2] {
				locktest.KillAndRestart(t, s)
			}
			_, err := next.Lock(locktest.Within(t, locktest.RestartQuarantine+locktest.Patience), "x")
			if err == nil && held.Err() == nil && !strings.Contains(risks, said) {
				t.Error("a second holder, and docs/restarts.md does not say that it is possible")
			}
		})
	}
}
