package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// mostBytes is what the tool may have as it is published.
const mostBytes = 15_000_000

// The tool stays small. What makes it large is whatever calls methods by names that are known
// when it runs, such as text/template and most libraries for command lines: the linker then keeps
// all methods, which are 10 MB of rueidis and etcd's client. The tag leaves out the pages that grpc
// has for its traces; what go install builds, without it, is twice as large.
func TestSize(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "redlatch")
	if out, err := exec.Command("go", "build", "-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(tool)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f MB", float64(info.Size())/1e6)
	if info.Size() > mostBytes {
		t.Errorf("%d bytes, more than %d", info.Size(), mostBytes)
	}
}
