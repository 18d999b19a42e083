package locking

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/printable"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/urltest"
)

// marker stands for the secret. It is no part of any word that is told otherwise.
const marker = "hUnTeR2"

// nobody is at the address of nowhere.
const nowhere = "redis://127.0.0.1:1"

// wordsOn is all that is said to a caller who gives the URL as a node, as one of
// several, and as the one to admit or to reset.
func wordsOn(t testing.TB, known *redlatch.Client, url string) string {
	t.Helper()
	var words strings.Builder
	c := redlatch.Config{Nodes: []string{url}, NodeTimeout: 100 * time.Millisecond}
	if client, err := redlatch.Open(c); err != nil {
		fmt.Fprintln(&words, err)
	} else {
		_, err := client.TryLock(t.Context(), "job")
		fmt.Fprintln(&words, err, client.Admit(t.Context(), nowhere+"/9"))
		client.Close()
	}
	c.Nodes = []string{nowhere, url, url}
	if client, err := redlatch.Open(c); err != nil {
		fmt.Fprintln(&words, err)
	} else {
		client.Close()
		t.Errorf("%q is taken for two nodes", url)
	}
	c.Nodes = []string{nowhere, url}
	reports, err := doctor.Examine(t.Context(), c)
	fmt.Fprintf(&words, "%v %+v\n", err, reports)
	fmt.Fprintln(&words, known.Admit(t.Context(), url), known.Reset(t.Context(), url))
	return words.String()
}

// stranger is a client of other nodes than those that are asked for.
func stranger(t testing.TB) *redlatch.Client {
	client, err := redlatch.Open(redlatch.Config{Nodes: []string{nowhere + "#known"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func TestNoSecretIsTold(t *testing.T) {
	t.Parallel()
	known, urls, leaks := stranger(t), urltest.Few(marker), 0
	for _, url := range urls {
		if words := wordsOn(t, known, url); strings.Contains(words, marker) {
			leaks++
			t.Errorf("%q: %s", url, words)
		}
	}
	t.Logf("%d URLs, %d leak", len(urls), leaks)
}

// An unknown node is told from the known ones, by what can be shown.
func TestUnknownNode(t *testing.T) {
	t.Parallel()
	client := stranger(t)
	for node, want := range map[string]string{
		"127.0.0.1:2":                  `no node is called "127.0.0.1:2" here: use one of known`,
		"redis://u:secret@127.0.0.1:2": `no node is called "redis://xxxxx@127.0.0.1:2" here: use one of known`,
		"u:secret@127.0.0.1:2":         `no node is called "…" here: use one of known`,
	} {
		for _, err := range []error{client.Admit(t.Context(), node), client.Reset(t.Context(), node)} {
			if !errors.Is(err, redlatch.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", node, err)
			}
		}
	}
}

// A password with anything in it, escaped or not, is in nothing that is told.
func FuzzSecret(f *testing.F) {
	for _, parts := range [][2]string{{"", ""}, {"12/", ""}, {"p#", "?"}, {"a@", "@b"}, {"12?addr=", "/"}, {"%", "%zz"}, {"\x1b", "\xff"}} {
		f.Add(parts[0], parts[1])
	}
	known := stranger(f)
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, url := range []string{
			"redis://alice:" + before + marker + after + "@127.0.0.1:1/1",
			"redis://127.0.0.1:1?sentinel_password=" + strings.NewReplacer("&", "", "#", "").Replace(before+marker+after) + "&master_set=m",
		} {
			if words := wordsOn(t, known, url); strings.Contains(words, marker) {
				t.Errorf("%q: %s", url, words)
			}
		}
	})
}

// Some servers repeat the arguments of a command that they do not know, and those
// of HELLO and AUTH are the password.
func TestServerRepeatsThePassword(t *testing.T) {
	t.Parallel()
	fake := redistest.NewFake(t, "", func(redistest.Command) string {
		return fmt.Sprintf("-ERR unknown command '\x1b[31mHELLO', with args beginning with: '3' 'AUTH' 'default' '%s' \r\n", marker)
	})
	c := redlatch.Config{Nodes: []string{"redis://:" + marker + "@" + fake.Addr()}, NodeTimeout: time.Second}
	client := locktest.Open(t, c)
	_, err := client.TryLock(locktest.Within(t, locktest.Patience), t.Name())
	reports, _ := doctor.Examine(locktest.Within(t, locktest.Patience), c)
	words := fmt.Sprint(err, client.Admit(locktest.Within(t, locktest.Patience), c.Nodes[0]), reports[0].Err)
	if !strings.Contains(words, "unknown command") {
		t.Errorf("the server's words are lost: %q", words)
	}
	if strings.Contains(words, marker) || !printable.Is(words) {
		t.Errorf("%q", words)
	}
}

// The values of others' locks are told without what a terminal obeys, those that
// look like ours too.
func TestForeignValuesAreEscaped(t *testing.T) {
	t.Parallel()
	server := locktest.Shared(t, 1)[0]
	client := locktest.Open(t, locktest.Config(redistest.URLs([]*redistest.Server{server})...))
	for i, value := range []string{
		"\x1b[2Jcleared", "\xff\xfe", "user\u202egnp.exe",
		strings.Repeat("A", 26) + ".m5yq0000.\x1b[31mred", strings.Repeat("A", 26) + ".m5yq0000.a\nb", strings.Repeat("A", 26) + ".m5yq0000.a\xff",
		strings.Repeat("A", 26) + ".m5yq0000." + strings.Repeat("x", 65),
	} {
		name := fmt.Sprint(t.Name(), i)
		if locktest.Do(t, server, "SET", name, value, "PX", "60000") != "OK" {
			t.Fatal("not set")
		}
		_, err := client.TryLock(locktest.Within(t, locktest.Patience), name)
		holder, _, ok := locktest.FailureOf(t, err).Holder()
		if !ok || holder.ID != value || holder.Label != "" || !holder.Since.IsZero() {
			t.Errorf("%q: holder %+v", value, holder)
		}
		if !printable.Is(err.Error()) {
			t.Errorf("%q", err)
		}
	}
}
