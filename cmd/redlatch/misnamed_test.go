//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
)

// Every command refuses a part of a Cluster that is named alone, and a Sentinel, and says how to name them.
func TestMisnamed(t *testing.T) {
	t.Setenv("REDLATCH_NODE_TIMEOUT", "1")
	for words, server := range map[string]*redistest.Server{
		"with ?cluster": redistest.NewCluster(t, 3)[0],
		"?master_set":   redistest.NewSentinel(t, "main", redistest.New(t), 1),
	} {
		t.Setenv("REDLATCH_NODES", server.URL())
		for _, c := range []struct {
			code int
			args []string
		}{
			{exitRefused, []string{"lock", "-n", "job"}},
			{exitRefused, []string{"show", "job"}},
			{exitRefused, []string{"list"}},
			{exitRefused, []string{"admit", "--all"}},
			{exitRefused, []string{"deployment", "set", "--yes", "--max-ttl", "31"}},
			{exitDiffers, []string{"deployment", "show"}},
			{2, []string{"doctor"}},
		} {
			if code := exitOf(t, c.args); code != c.code {
				t.Errorf("%q, to be named %s: exit code %d, want %d", c.args, words, code, c.code)
			}
			if text := printed(t, c.args...); !strings.Contains(text, words) || strings.Contains(text, "the first client that it votes for") {
				t.Errorf("%q does not say how to name it, %s:\n%s", c.args, words, text)
			}
		}
	}
}

// A server that is no part of a Cluster, and named as one, is refused likewise.
func TestNoCluster(t *testing.T) {
	t.Setenv("REDLATCH_NODE_TIMEOUT", "1")
	t.Setenv("REDLATCH_NODES", redistest.New(t).URL()+"?cluster")
	for _, args := range [][]string{{"lock", "-n", "job"}, {"show", "job"}, {"admit", "--all"}, {"deployment", "show"}, {"doctor"}} {
		if text := printed(t, args...); !strings.Contains(text, "name it alone, without ?cluster") {
			t.Errorf("%q does not say how to name it:\n%s", args, text)
		}
	}
}
