package release

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// No image is built here. What the Dockerfile copies is there, and what it builds runs without
// anything else: the last stage has no libc and no shell.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	built := filepath.Join(t.TempDir(), "redlatch")
	copies, builds := 0, 0
	for line := range strings.Lines(string(text)) {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch instruction {
		case "COPY":
			copies++
			words := strings.Fields(rest)
			if words[0] == "--from=build" {
				continue
			}
			for _, source := range words[:len(words)-1] {
				if _, err := os.Stat(filepath.Join(root, source)); err != nil || slices.Contains(lines(t, filepath.Join(root, ".dockerignore")), source) {
					t.Errorf("%s: %v, or it is in .dockerignore", strings.TrimSpace(line), err)
				}
			}
		case "RUN":
			builds++
			cmd := exec.Command("sh", "-c", strings.Replace(rest, "-o /redlatch ", "-o "+built+" ", 1))
			cmd.Dir = root
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", rest, err, out)
			}
		}
	}
	if copies != 3 || builds != 1 || !regexp.MustCompile(`(?m)^FROM .*distroless/static.*:nonroot$`).Match(text) {
		t.Errorf("it copies %d times, builds %d times, or its last stage is another", copies, builds)
	}
	program, err := elf.Open(built)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	libraries, err := program.ImportedLibraries()
	if err != nil || len(libraries) > 0 || slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Errorf("it needs a loader, or %q, %v", libraries, err)
	}
	out, err := exec.Command(built, "--version").Output()
	want, err2 := version(root)
	if err != nil || err2 != nil || !strings.HasPrefix(string(out), "redlatch "+want+" ") {
		t.Errorf("it says %q, %v, %v", out, err, err2)
	}
}
