// Torture runs `redlatch-torture run` over Redlatch, redsync and node-redlock, one
// after the other, with the same faults and the same judge, and prints a table.
// It needs redis-server, Node and npm.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// root is the directory of the repository's root from that of this module.
const root = ".."

func main() {
	length := flag.Duration("for", time.Minute, "how long to torture each")
	seed := flag.Uint64("seed", 1, "what the plan of the faults is drawn from")
	keep := flag.String("reports", "", "directory for the reports (default: none are kept)")
	flag.Parse()
	if err := run(context.Background(), *length, *seed, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
}

// faults are the kinds that mean the same to every library.
const faults = "kill,wipe,blackout,hang,partition,split,latency,half-open,reset,refuse,lost-reply,namespace,clock,nudge," +
	"demote,failback,attach,settings,flush,scripts,restore,stop,crash,starve"

// subject is a library under torture.
type subject struct {
	name    string
	command string // its worker's, "" for Redlatch's own
}

func run(ctx context.Context, length time.Duration, seed uint64, keep string) error {
	dir, err := os.MkdirTemp("", "redlatch-bench-torture-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if keep == "" {
		keep = dir
	}
	node, err := filepath.Abs("torture/noderedlock")
	if err != nil {
		return err
	}
	redlatch, redsync := filepath.Join(dir, "redlatch-torture"), filepath.Join(dir, "redsync")
	for _, command := range [][]string{
		{"go", "build", "-o", redlatch, "./" + root + "/cmd/redlatch-torture"},
		{"go", "build", "-o", redsync, "./torture/redsync"},
		{"npm", "ci", "--prefix", node, "--ignore-scripts", "--no-audit", "--no-fund", "--silent"},
	} {
		c := exec.CommandContext(ctx, command[0], command[1:]...)
		c.Stdout, c.Stderr = os.Stderr, os.Stderr
		if err := c.Run(); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(command, " "), err)
		}
	}
	subjects := []subject{
		{"Redlatch", ""},
		{"redsync " + moduleVersion("github.com/go-redsync/redsync/v4"), redsync},
		{"node-redlock " + packageVersion(node, "redlock"), "node " + filepath.Join(node, "worker.js")},
	}
	var results []result
	for i, s := range subjects {
		report := filepath.Join(keep, fmt.Sprint("torture-", i+1))
		args := []string{"run", "--for", length.String(), "--seed", fmt.Sprint(seed), "--faults", faults, "--report", report}
		if s.command != "" {
			args = append(args, "--no-control", "--worker-command", s.command)
		}
		fmt.Fprintf(os.Stderr, "\n%s\n", s.name)
		c := exec.CommandContext(ctx, redlatch, args...)
		c.Stdout, c.Stderr = os.Stderr, os.Stderr
		// 1 is the verdict on what was violated, which is what is asked here.
		if exit, ok := errors.AsType[*exec.ExitError](c.Run()); ok && exit.ExitCode() != 1 {
			return fmt.Errorf("%s: %w", s.name, exit)
		}
		r, err := read(filepath.Join(report, "report.json"))
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		r.name = s.name
		results = append(results, r)
	}
	fmt.Printf("%v each, seed %d, %s; go-redis %s, ioredis %s, Node %s\n\n", length, seed, results[0].Servers,
		moduleVersion("github.com/redis/go-redis/v9"), packageVersion(node, "ioredis"), output("node", "--version"))
	fmt.Print(table(results))
	return nil
}

func moduleVersion(path string) string {
	return strings.TrimPrefix(output("go", "list", "-m", "-f", "{{.Version}}", path), "v")
}

func packageVersion(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, "node_modules", name, "package.json"))
	var p struct{ Version string }
	if err != nil || json.Unmarshal(text, &p) != nil {
		return "of an unknown version"
	}
	return p.Version
}

func output(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return "of an unknown version"
	}
	return strings.TrimSpace(string(out))
}
