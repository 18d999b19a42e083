//go:build unix

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/ensemble"
	"github.com/redlatch/redlatch/internal/urltest"
)

// marker stands for the secret. It is no part of any word that is printed
// otherwise.
const marker = "hUnTeR2"

// printed runs one command line in this process and returns all that it prints.
func printed(t testing.TB, args ...string) string {
	t.Helper()
	file, err := os.CreateTemp("", "redlatch-out")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = file, file
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()
	execute(args)
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// commandLines are those that a URL can be given to.
func commandLines(url string) [][]string {
	const honest = "redis://127.0.0.1:1"
	return [][]string{
		{"lock", "--nodes", url, "--wait", "0", "job"},
		{"lock", "--nodes", url + "," + honest, "--wait", "0", "--verbose", "job"},
		{"extend", "--nodes", url, "job", "handle"},
		{"unlock", "--nodes", url, "job", "handle"},
		{"show", "--nodes", url, "job"},
		{"show", "--nodes", url, "--json", "job"},
		{"doctor", "--nodes", url},
		{"doctor", "--nodes", honest + "," + url, "--json"},
		{"run", "--nodes", url, "--wait", "0", "job", "--", "true"},
		{"admit", "--nodes", url, url},
		{"admit", "--nodes", honest, url},
		{"admit", "--reset", "--yes", "--nodes", url, url},
		{"admit", "--reset", "--yes", "--nodes", honest, url},
	}
}

// misplaced are command lines with a URL where none is expected.
func misplaced(url string) [][]string {
	return [][]string{
		{"show", "job", url},
		{"show", "--node", url, "job"},
		{"show", "--node=" + url, "job"},
		{"show", "--node-timeout", url, "job"},
		{"show", "--max-ttl=" + url, "job"},
		{"show", "-" + url, "job"},
		{"show", "--" + url, "job"},
		{"__complete", "show", "--node-timeout", url, ""},
		{"__completeNoDesc", "show", "--node-timeout", url, ""},
		{"help", url},
		{"completion", url},
		{"run", "--wait", url, "job", "--", "true"},
		{"run", "--wait", "0", "job", url, "--", "true"},
		{url, "--nodes", "redis://127.0.0.1:1", "job"},
	}
}

// Whatever is wrong with a URL, or with what comes of it, its secrets are not
// printed.
func TestNoSecretIsPrinted(t *testing.T) {
	t.Setenv("REDLATCH_NODES", "")
	t.Setenv("REDLATCH_PASSWORD", "")
	urls, lines, leaks := urltest.Few(marker), 0, 0
	leaky := make(map[string]bool)
	for _, url := range urls {
		all := commandLines(url)
		if strings.Contains(url, "@") || strings.Contains(url, "://") {
			all = append(all, misplaced(url)...)
		}
		for _, args := range all {
			lines++
			if text := printed(t, args...); strings.Contains(text, marker) {
				leaks++
				leaky[url] = true
				if leaks <= 20 {
					t.Errorf("%q prints\n%s", args, text)
				}
			}
		}
	}
	t.Logf("%d URLs in %d command lines: %d URLs leaked, in %d command lines", len(urls), lines, len(leaky), leaks)
}

// The same of URLs of ensembles. One that can be read is tried, and nobody answers.
func TestNoSecretOfAnEnsembleIsPrinted(t *testing.T) {
	t.Setenv("REDLATCH_NODES", "")
	t.Setenv("REDLATCH_PASSWORD", "")
	for _, url := range urltest.Few(marker) {
		_, rest, ok := strings.Cut(url, "://")
		if !ok || !strings.Contains(rest, "@") {
			continue
		}
		for _, scheme := range []string{"zk://", "etcds://"} {
			url := scheme + rest
			all := misplaced(url)
			if _, err := ensemble.ParseURL(url); err != nil {
				all = append(all, commandLines(url)...)
				all = append(all, []string{"list", "--nodes", url})
			}
			for _, args := range all {
				if text := printed(t, args...); strings.Contains(text, marker) {
					t.Errorf("%q prints\n%s", args, text)
				}
			}
		}
	}
	for _, url := range []string{"zk://u:" + marker + "@127.0.0.1:1", "etcd://u:" + marker + "@127.0.0.1:1/a", "etcds://u:" + marker + "@127.0.0.1:1/a/"} {
		for _, args := range [][]string{
			{"lock", "-v", "--nodes", url, "--wait", "0", "job"}, {"show", "--json", "--nodes", url, "job"}, {"admit", "--all", "--nodes", url},
		} {
			if text := printed(t, args...); strings.Contains(text, marker) || text == "" {
				t.Errorf("%q prints\n%s", args, text)
			}
		}
	}
}

// A password with anything in it, escaped or not, is printed by no command.
func FuzzSecret(f *testing.F) {
	for _, parts := range [][2]string{{"", ""}, {"12/", ""}, {"p#", "?"}, {"a@", "@b"}, {"12?addr=", "/"}, {"%", "%zz"}, {"\x1b", "\xff"}, {"12,", ",x"}} {
		f.Add(parts[0], parts[1], uint(len(parts[0])))
	}
	for _, name := range []string{"REDLATCH_NODES", "REDLATCH_PASSWORD"} {
		f.Setenv(name, "")
	}
	f.Fuzz(func(t *testing.T, before, after string, choice uint) {
		url := "redis://alice:" + before + marker + after + "@127.0.0.1:1/1"
		all := append(commandLines(url), misplaced(url)...)
		args := all[choice%uint(len(all))]
		if text := printed(t, args...); strings.Contains(text, marker) {
			t.Errorf("%q prints\n%s", args, text)
		}
	})
}

// The help says which variables are read, and not what is in them.
func TestHelpPrintsNoSecret(t *testing.T) {
	if os.Getenv("REDLATCH_TEST_HELP") != "" {
		execute([]string{os.Getenv("REDLATCH_TEST_HELP"), "--help"})
		return
	}
	for _, command := range []string{"lock", "doctor", "admit", "run"} {
		help := exec.Command(os.Args[0], "-test.run=^TestHelpPrintsNoSecret$")
		help.Env = append(os.Environ(), "REDLATCH_TEST_HELP="+command, "REDLATCH_NODES=redis://u:"+marker+"@127.0.0.1:1", "REDLATCH_PASSWORD="+marker)
		text, err := help.CombinedOutput()
		if err != nil || !strings.Contains(string(text), "REDLATCH_NODES") || strings.Contains(string(text), marker) {
			t.Errorf("%s: %v\n%s", command, err, text)
		}
	}
}
