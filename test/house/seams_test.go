package house

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
)

// seams are what can be taken out of the library by deleting its files and one line: each only
// saves work, and the lock is the same without it.
var seams = map[string]struct {
	files      []string
	file       string // with the line
	line, then string
	run, skip  string // what is about nothing else is skipped
	tests      []string
}{
	"batches": {
		files: []string{"internal/node/batch.go", "test/locking/steps_together_test.go"},
		file:  "client.go",
		line:  "	return node.Batch(node.New(conn, o), c.config.batchAbove), nil\n",
		then:  "	return node.New(conn, o), nil\n",
		run:   "Conformance|OneShot",
		skip:  "^$",
		tests: []string{"./test/locking", "./oneshot"},
	},
	"direct connection": {
		files: []string{"internal/redisconn/direct.go", "internal/redisconn/wire.go"},
		file:  "endpoint.go",
		line:  "		return redisconn.NewDirect(conn), nil\n",
		run:   "Conformance|OneShot",
		skip:  "^$",
		tests: []string{"./test/locking", "./oneshot"},
	},
	"renewals together": {
		files: []string{"internal/quorum/renewals.go", "internal/node/extend_batch.go", "test/locking/steps_together_test.go"},
		file:  "client.go",
		line:  "	c.renewals = quorum.NewRenewals(c.life, c.engine, config.acknowledged())\n",
		run:   "Conformance|Renew|Extend",
		skip:  "TestManyAreRenewedTogether",
		tests: []string{"./test/locking"},
	},
	"blocks of tokens": {
		files: []string{"internal/quorum/succeed.go", "succeed.go"},
		file:  "client.go",
		line:  "		Succeed: succeed,\n",
		run:   ".",
		skip:  "^$",
		tests: []string{"./test/waiting"},
	},
	"transfer": {
		files: []string{"internal/quorum/transfer.go", "internal/quorum/release_queued.go"},
		file:  "client.go",
		line:  "	c.waitqueue.UseTransfers(quorum.NewTransfers(c.engine, config.MaxTTL))\n",
		run:   ".",
		// Who is next then waits for all that was left to be released, an answer of the arbiter too.
		skip:  "Transfer|ArbiterIsNotHeard|TestArbiterIsSlow",
		tests: []string{"./test/waiting"},
	},
}

// The conformance suite passes without each of them, and what else it could change.
func TestSeams(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the library anew, and locks on real servers")
	}
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	servers := redistest.Flavors()
	if len(servers) == 0 {
		t.Fatal(redistest.ErrNoServer)
	}
	for name, seam := range seams {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join(top, seam.file))
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(text, []byte(seam.line)); n != 1 {
				t.Fatalf("%s has the line %d times: %q", seam.file, n, seam.line)
			}
			without := filepath.Join(t.TempDir(), filepath.Base(seam.file))
			if err := os.WriteFile(without, bytes.Replace(text, []byte(seam.line), []byte(seam.then), 1), 0o600); err != nil {
				t.Fatal(err)
			}
			replaced := map[string]string{filepath.Join(top, seam.file): without}
			for _, file := range seam.files {
				replaced[filepath.Join(top, file)] = "" // not there
			}
			overlay, err := json.Marshal(map[string]any{"Replace": replaced})
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "overlay.json")
			if err := os.WriteFile(path, overlay, 0o600); err != nil {
				t.Fatal(err)
			}
			tests := exec.CommandContext(t.Context(), "go", "test", "-short", "-vet=off", "-count=1", "-p=1", "-overlay="+path, "-run="+seam.run, "-skip="+seam.skip)
			tests.Args = append(tests.Args, seam.tests...)
			tests.Dir = top
			// The other kinds of server execute the same steps: what is taken out is nothing that they see.
			tests.Env = append(os.Environ(), "REDISTEST_SERVERS="+servers[0])
			if out, err := tests.CombinedOutput(); err != nil {
				t.Errorf("without it: %v\n%s", err, out)
			}
		})
	}
}
