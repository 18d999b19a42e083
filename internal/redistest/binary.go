package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// ErrNoServer is found by errors.Is when no server binary is installed.
var ErrNoServer = errors.New("no redis-server or valkey-server found in PATH " +
	"(remedy: apt-get install redis-server, or name binaries in " + binariesEnv + ", separated by commas)")

// binariesEnv names the servers to run on instead of those found in PATH.
const binariesEnv = "REDISTEST_SERVERS"

// Flavors returns the server binaries that tests should run on: those named in
// the environment variable REDISTEST_SERVERS (commas between them), or else the
// ones of redis-server and valkey-server that are in PATH. The first is what
// [Start] uses when Options name none. Empty when nothing is installed.
func Flavors() []string {
	names := []string{"redis-server", "valkey-server"}
	if env := os.Getenv(binariesEnv); env != "" {
		names = strings.Split(env, ",")
	}
	var found []string
	for _, name := range names {
		name = strings.TrimSpace(name)
		if _, err := exec.LookPath(name); err == nil {
			found = append(found, name)
		}
	}
	return found
}

// binary is one installed server program.
type binary struct {
	path  string
	major int // first number of its version: 7 for Redis 7.0.15, 8 for Valkey 8.0.1
	text  string
}

var versionPattern = regexp.MustCompile(`v=((\d+)\.\S+)`)

// binaries remembers what each path said about itself, so that a test of
// hundreds of servers asks once.
var binaries sync.Map // path → binary

func findBinary(ctx context.Context, name string) (binary, error) {
	if name == "" {
		flavors := Flavors()
		if len(flavors) == 0 {
			return binary{}, ErrNoServer
		}
		name = flavors[0]
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return binary{}, fmt.Errorf("%q: %w (%w)", name, ErrNoServer, err)
	}
	if known, ok := binaries.Load(path); ok {
		return known.(binary), nil
	}
	out, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil {
		return binary{}, fmt.Errorf("%s --version: %w: %s", path, err, out)
	}
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return binary{}, fmt.Errorf("%s --version says %q, which is no version of Redis or Valkey", path, out)
	}
	major, err := strconv.Atoi(string(m[2]))
	if err != nil {
		return binary{}, fmt.Errorf("%s --version: %w", path, err)
	}
	b := binary{path: path, major: major, text: string(m[1])}
	binaries.Store(path, b)
	return b, nil
}
