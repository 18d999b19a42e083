package release

import (
	"archive/zip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// outside is what somebody has who has nothing of this repository but its published modules: a
// proxy that serves them, made from the working tree, and a module cache without them. Nothing of
// it is left in the user's own cache, where a released version of the same name would then be
// refused as another.
type outside struct {
	version string
	folders []string // of the modules
	env     []string
}

// newOutside publishes the working tree.
func newOutside(t *testing.T) *outside {
	t.Helper()
	var o outside
	var err error
	if o.version, err = version(root); err != nil {
		t.Fatal(err)
	}
	if o.folders, err = modules(root); err != nil {
		t.Fatal(err)
	}
	proxy := t.TempDir()
	for _, folder := range o.folders {
		if err := publish(filepath.Join(proxy, module, folder, "@v"), folder, o.version); err != nil {
			t.Fatalf("%s: %v", folder, err)
		}
	}
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	own := strings.Fields(string(out))
	o.env = append(os.Environ(),
		"GOWORK=off",
		// Others' modules are where they are for the workspace, or come from where they come from.
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(own[0], "cache/download")+","+own[1],
		"GOMODCACHE="+t.TempDir(),
		// What others' modules must be is in go.sum; nobody has signed ours.
		"GONOSUMDB=*",
		// With -trimpath the compiled packages do not depend on where the module cache is, and are
		// found in the build cache the next time.
		"GOFLAGS=-mod=mod -modcacherw -trimpath -buildvcs=false",
	)
	return &o
}

// publish writes what the proxy serves of a module.
func publish(to, folder, version string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(root, folder, "go.mod"))
	if err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(to, version+".zip"))
	if err != nil {
		return err
	}
	w := zip.NewWriter(archive)
	err = eachFile(folder, func(name string, text []byte) error {
		f, err := w.Create(path.Join(module, folder) + "@" + version + "/" + name)
		if err == nil {
			_, err = f.Write(text)
		}
		return err
	})
	return errors.Join(err, w.Close(), archive.Close(),
		os.WriteFile(filepath.Join(to, "list"), []byte(version+"\n"), 0o644),
		os.WriteFile(filepath.Join(to, version+".info"), fmt.Appendf(nil, "{%q: %q, %q: %q}", "Version", version, "Time", time.Now().UTC().Format(time.RFC3339)), 0o644),
		os.WriteFile(filepath.Join(to, version+".mod"), mod, 0o644))
}

// eachFile calls f with each file of the module in the folder, which are those that are in no
// other module.
func eachFile(folder string, f func(name string, text []byte) error) error {
	tree := os.DirFS(filepath.Join(root, folder))
	return fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, err := fs.Stat(tree, path.Join(name, "go.mod"))
			if name != "." && (skipped(path.Join(folder, name)) || err == nil) {
				return fs.SkipDir
			}
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		return f(name, text)
	})
}

// run runs a command in the folder, in the environment of outside, and returns what it says.
func (o *outside) run(t *testing.T, folder string, command ...string) string {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = folder
	cmd.Env = o.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v:\n%s", command, err, out)
	}
	return string(out)
}

// Each module builds without the workspace, with the versions that it names by itself, and what its
// go.mod and go.sum have is what it needs.
func TestModules(t *testing.T) {
	o := newOutside(t)
	for _, m := range o.folders {
		t.Run(m, func(t *testing.T) {
			folder := t.TempDir()
			if err := eachFile(m, func(name string, text []byte) error {
				write(t, filepath.Join(folder, name), string(text))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			o.run(t, folder, "go", "mod", "tidy")
			for _, file := range []string{"go.mod", "go.sum"} {
				before, after := lines(t, filepath.Join(root, m, file)), lines(t, filepath.Join(folder, file))
				for _, line := range after {
					// Sums of ours are in no go.sum: the workspace needs none, and those who install
					// look at none.
					if !slices.Contains(before, line) && !strings.HasPrefix(line, module) {
						t.Errorf("%s lacks %q: go mod tidy adds it", file, line)
					}
				}
				for _, line := range before {
					if !slices.Contains(after, line) {
						t.Errorf("%s has %q: go mod tidy takes it away", file, line)
					}
				}
			}
			if testing.Short() {
				o.run(t, folder, "go", "build", "./...")
			} else {
				o.run(t, folder, "go", "vet", "./...") // the tests as well, which import the most
			}
		})
	}
}

func lines(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}
