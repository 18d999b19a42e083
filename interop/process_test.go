package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// The interpreter that has Debian's packages: the first python3 in PATH may be
// another.
const python = "/usr/bin/python3"

// process is a peer in another language: node/peer.js, python/peer.py or
// php/peer.php, which take one line a request and answer with one.
type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *bufio.Reader
	// self is what it calls itself: name, version and what it runs on.
	self string
}

func startProcess(t *testing.T, command ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(command[0], command[1:]...)}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints strings.Builder
	p.cmd.Stderr = &complaints
	p.answers = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%v: %v; `make setup` installs what the tests need", command, err)
	}
	t.Cleanup(func() {
		p.in.Close() // the end of its input ends it
		late := time.AfterFunc(patience, func() { p.cmd.Process.Kill() })
		defer late.Stop()
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("%v ended with %v", command, err)
		}
		if t.Failed() {
			t.Logf("%v wrote:\n%s", command, complaints.String())
		}
	})
	if p.self, err = p.read(); err != nil {
		t.Fatalf("%v: %v; `make setup` installs what the tests need", command, err)
	}
	return p
}

// ask sends a request and returns the first word of the answer.
func (p *process) ask(request string) (string, error) {
	if _, err := io.WriteString(p.in, request+"\n"); err != nil {
		return "", err
	}
	answer, err := p.read()
	if err == nil && strings.HasPrefix(answer, "error") {
		err = fmt.Errorf("%s: %s: %s", p.self, request, answer)
	}
	return answer, err
}

func (p *process) read() (string, error) {
	late := time.AfterFunc(patience, func() { p.cmd.Process.Kill() })
	defer late.Stop()
	line, err := p.answers.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

func (p *process) acquire(_ context.Context, name string, ttl time.Duration) (bool, error) {
	answer, err := p.ask(fmt.Sprintf("acquire %s %d", name, ttl.Milliseconds()))
	return answer == "ok", err
}

func (p *process) release(context.Context) (bool, error) {
	answer, err := p.ask("release")
	return answer == "ok", err
}

func addresses(nodes []*redistest.Server) []string {
	addresses := make([]string, len(nodes))
	for i, s := range nodes {
		addresses[i] = s.Addr()
	}
	return addresses
}

// openNode returns what starts a client of an npm library.
func openNode(name string) func(t *testing.T, nodes []*redistest.Server) peer {
	return func(t *testing.T, nodes []*redistest.Server) peer {
		p := startProcess(t, append([]string{"node", "node/peer.js", name}, addresses(nodes)...)...)
		t.Log(p.self)
		return p
	}
}

// npm returns what version of an npm package is installed.
func npm(name string) func(t *testing.T) string {
	return func(t *testing.T) string {
		text, err := os.ReadFile(filepath.Join("node", "node_modules", name, "package.json"))
		if err != nil {
			t.Fatalf("%v: `make setup` installs it", err)
		}
		var manifest struct{ Version string }
		if err := json.Unmarshal(text, &manifest); err != nil {
			t.Fatal(err)
		}
		return manifest.Version
	}
}

func openRedisPy(t *testing.T, nodes []*redistest.Server) peer {
	p := startProcess(t, python, "python/peer.py", nodes[0].Addr())
	t.Log(p.self)
	return p
}

func redisPyVersion(t *testing.T) string {
	out, err := exec.Command(python, "-c", "import redis; print(redis.__version__)").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s; `make setup` installs python3-redis", err, out)
	}
	return strings.TrimSpace(string(out))
}

func openPHPRedisMutex(t *testing.T, nodes []*redistest.Server) peer {
	p := startProcess(t, append([]string{"php", "php/peer.php"}, addresses(nodes)...)...)
	t.Log(p.self)
	return p
}

// phpRedisMutexVersion is that of Debian's package, which adds what it has changed.
func phpRedisMutexVersion(t *testing.T) string {
	out, err := exec.Command("dpkg-query", "-W", "-f", "${Version}", "php-malkusch-lock").Output()
	if err != nil {
		t.Fatalf("%v; `make setup` installs php-malkusch-lock", err)
	}
	version, _, _ := strings.Cut(string(out), "+")
	return version
}
