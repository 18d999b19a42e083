package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// Of several machines that start it, one writes the report; the others leave it at that.
func TestOnce(t *testing.T) {
	servers, err := redistest.StartNodes(t.Context(), 3, redistest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		t.Cleanup(func() { s.Close() })
	}
	urls := redistest.URLs(servers)
	client, err := redlatch.Open(redlatch.Config{Nodes: urls})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, url := range urls {
		if err := client.Admit(t.Context(), url); err != nil { // they have only just started
			t.Fatal(err)
		}
	}
	program := filepath.Join(t.TempDir(), "cron-once")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	reports, busy := 0, 0
	for range 3 {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), "REDLATCH_NODES="+strings.Join(urls, ","))
		out, err := cmd.CombinedOutput()
		switch {
		case err != nil && strings.Contains(string(out), redlatch.ErrNoQuorum.Error()):
			busy++ // the machine is
		case err != nil:
			t.Errorf("%v: %s", err, out)
		case string(out) == "the report\n":
			reports++
		case len(out) > 0:
			t.Errorf("it says %q", out)
		}
	}
	if reports > 1 || reports+busy == 0 {
		t.Errorf("%d wrote the report", reports)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "REDLATCH_NODES=nonsense")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "Config.Nodes[0]: no scheme") {
		t.Errorf("with nonsense: %v: %s", err, out)
	}
}

// The guide shows the program as it is, in twelve lines.
func TestGuide(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../../docs/guides/cron.md")
	if err != nil {
		t.Fatal(err)
	}
	main := regexp.MustCompile(`(?s)func main\(\) \{\n.*?\n\}\n`).FindString(string(program))
	if !strings.Contains(string(guide), "```go\n"+main+"```\n") {
		t.Errorf("the guide has another text than\n%s", main)
	}
	if lines := strings.Count(main, "\n"); lines > 12 {
		t.Errorf("%d lines", lines)
	}
}
