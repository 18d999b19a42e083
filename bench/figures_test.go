package bench

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redlatch/redlatch/bench/figures"
	"github.com/redlatch/redlatch/internal/redistest"
)

var figuresFile = flag.String("figures", "", "append the figures of this run to a file, of which report makes docs/benchmarks.md")

// recorded is the run's log, nil where no file was asked for.
var recorded *figures.Log

// record notes a figure of a row of b, each round's.
func record(b *testing.B, row, metric string, rounds []float64) {
	b.Helper()
	err := recorded.Add(figures.Figure{Benchmark: strings.TrimPrefix(b.Name(), "Benchmark"), Row: row, Metric: metric, Rounds: rounds})
	if err != nil {
		b.Fatal(err)
	}
}

// recording begins the run's log, which end ends after the servers have ended, too.
func recording() (end func() error, err error) {
	if *figuresFile == "" {
		return func() error { return nil }, nil
	}
	file, err := os.OpenFile(*figuresFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	begin := figures.Begin{
		Time: time.Now().UTC().Truncate(time.Second), Commit: commit(), Command: command(os.Args), CPU: field("/proc/cpuinfo", "model name"),
		Processors: runtime.NumCPU(), System: said("uname", "-sr"), Versions: versions(), Load: load(),
	}
	if kilobytes, err := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64); err == nil {
		begin.Memory = kilobytes << 10
	}
	if recorded, err = figures.NewLog(file, begin); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	start, before, ours := time.Now(), readTicks(), withChildren()
	return func() error {
		after := readTicks()
		all := max(1, after.all-before.all)
		const tick = 10 * time.Millisecond // USER_HZ is 100 on all machines that Go runs on
		others := after.busy - before.busy - float64(withChildren()-ours)/float64(tick)
		err := recorded.End(figures.End{
			Seconds: time.Since(start).Seconds(), Load: load(), Others: max(0, 100*others/all), Stolen: stolenSince(before),
		})
		return errors.Join(err, file.Close())
	}, nil
}

// withChildren is the time of processors that this process has used, and its children that have ended.
func withChildren() time.Duration {
	used := cpuTime()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		panic(err) // it fails for bad arguments only
	}
	return used + time.Duration(usage.Utime.Nano()+usage.Stime.Nano())
}

// command is how go test was told to run this.
func command(args []string) string {
	said := []string{"go test"}
	for _, arg := range args[1:] {
		flag, ok := strings.CutPrefix(arg, "-")
		flag = strings.TrimPrefix(flag, "test.")
		name, _, _ := strings.Cut(flag, "=")
		if ok && !slices.Contains([]string{"paniconexit0", "timeout", "testlogfile", "gocoverdir", "figures", "write-costs"}, name) {
			said = append(said, "-"+flag)
		}
	}
	return strings.Join(said, " ")
}

// said is what a program prints, "" where it cannot.
func said(name string, args ...string) string {
	text, err := exec.Command(name, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// commit is the repository's, without minding what the page and the table of engines say.
func commit() string {
	id := said("git", "rev-parse", "--short=12", "HEAD")
	if said("git", "status", "--porcelain", "--untracked-files=no", "--", ":/", ":!/docs") != "" {
		id += "-dirty"
	}
	return id
}

// field is the first of that name in a file of names and values.
func field(file, name string) string {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if n, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(n) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(text))[:min(3, len(strings.Fields(string(text))))], " ")
}

var number = regexp.MustCompile(`\d+\.\d+[^\s"]*`)

// versions are those of what is measured and of what it runs on.
func versions() (all []figures.Version) {
	add := func(name, version string) {
		if version != "" {
			all = append(all, figures.Version{Name: name, Version: version})
		}
	}
	add("Go", strings.TrimPrefix(runtime.Version(), "go"))
	for i, program := range redistest.Flavors() {
		name, version := filepath.Base(program), number.FindString(said(program, "--version"))
		if i > 0 {
			name += " (not used)"
		}
		add(name, version)
	}
	add("etcd", number.FindString(said("etcd", "--version")))
	if jars, _ := filepath.Glob("/usr/share/java/zookeeper-[0-9]*.jar"); len(jars) > 0 {
		add("ZooKeeper", strings.TrimSuffix(number.FindString(filepath.Base(jars[0])), ".jar"))
	}
	code, _ := os.ReadFile("../cmd/internal/commandline/version.go")
	add("Redlatch", number.FindString(string(code)))
	for _, module := range []string{
		"github.com/redis/rueidis", "github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4", "github.com/bsm/redislock",
		"github.com/go-zookeeper/zk", "go.etcd.io/etcd/client/v3",
	} {
		add(module, said("go", "list", "-m", "-f", "{{.Version}}", module))
	}
	return all
}

// grid are the figures of a benchmark that counts no contestants: rows by metrics, each with its rounds.
type grid struct {
	rows, metrics []string
	rounds        map[[2]string][]float64
}

// add notes a round.
func (g *grid) add(row, metric string, value float64) {
	if g.rounds == nil {
		g.rounds = make(map[[2]string][]float64)
	}
	if !slices.Contains(g.rows, row) {
		g.rows = append(g.rows, row)
	}
	if !slices.Contains(g.metrics, metric) {
		g.metrics = append(g.metrics, metric)
	}
	g.rounds[[2]string{row, metric}] = append(g.rounds[[2]string{row, metric}], value)
}

// write prints the medians, and records all.
func (g *grid) write(b *testing.B) {
	b.Helper()
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%s\t%s\t\n", strings.TrimPrefix(b.Name(), "Benchmark"), strings.Join(g.metrics, "\t"))
	for _, row := range g.rows {
		fmt.Fprintf(w, "%s\t", row)
		for _, metric := range g.metrics {
			rounds := g.rounds[[2]string{row, metric}]
			if len(rounds) == 0 {
				fmt.Fprint(w, "\t")
				continue
			}
			record(b, row, metric, rounds)
			fmt.Fprintf(w, "%.4g\t", middle(slices.Clone(rounds)))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	os.Stdout.Write(text.Bytes())
}
