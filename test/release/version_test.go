package release

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	// root is the folder of the repository.
	root = "../.."
	// module is the path of its root module; the other modules' paths begin with it.
	module = "github.com/redlatch/redlatch"
	// versionFile has the version of all modules.
	versionFile = "cmd/internal/commandline/version.go"
)

var (
	versionConst = regexp.MustCompile(`(?m)^const Version = "(.*)"$`)
	required     = regexp.MustCompile(`(?m)^\s*(?:require )?(` + module + `[^\s]*) (v[^\s]+)`)
	used         = regexp.MustCompile(`(?m)^\t(\.[^\s]*)$`)
)

// version is that of the modules in the folder.
func version(folder string) (string, error) {
	text, err := os.ReadFile(filepath.Join(folder, versionFile))
	if err != nil {
		return "", err
	}
	found := versionConst.FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%s has no version", versionFile)
	}
	return string(found[1]), nil
}

// modules are the folders of all modules, "." first.
func modules(folder string) ([]string, error) {
	var folders []string
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped(name):
			return fs.SkipDir
		case d.Name() == "go.mod":
			folders = append(folders, path.Dir(name))
		}
		return nil
	})
	slices.Sort(folders)
	return folders, err
}

// skipped reports whether a folder has nothing that is published.
func skipped(folder string) bool {
	name := path.Base(folder)
	return name == "node_modules" || folder == "bin" || folder == "dist" || folder == "share" || name != "." && strings.HasPrefix(name, ".")
}

// checkVersions says where the modules in the folder do not have the version of versionFile.
func checkVersions(folder string) (wrong []string, err error) {
	want, err := version(folder)
	if err != nil {
		return nil, err
	}
	folders, err := modules(folder)
	if err != nil {
		return nil, err
	}
	for _, m := range folders {
		text, err := os.ReadFile(filepath.Join(folder, m, "go.mod"))
		if err != nil {
			return nil, err
		}
		found := required.FindAllSubmatch(text, -1)
		if len(found) == 0 && m != "." {
			wrong = append(wrong, m+"/go.mod does not require "+module)
		}
		for _, r := range found {
			if string(r[2]) != want {
				wrong = append(wrong, fmt.Sprintf("%s/go.mod requires %s %s, not %s", m, r[1], r[2], want))
			}
		}
		if strings.Contains(string(text), "\nreplace") {
			wrong = append(wrong, m+"/go.mod has a replace, so that nobody can install from it")
		}
	}
	work, err := os.ReadFile(filepath.Join(folder, "go.work"))
	if err != nil {
		return nil, err
	}
	for _, r := range required.FindAllSubmatch(work, -1) {
		if string(r[2]) != want {
			wrong = append(wrong, fmt.Sprintf("go.work replaces %s %s, not %s", r[1], r[2], want))
		}
	}
	var uses []string
	for _, use := range used.FindAllSubmatch(work, -1) {
		uses = append(uses, path.Clean(string(use[1])))
	}
	if slices.Sort(uses); !slices.Equal(uses, folders) {
		wrong = append(wrong, fmt.Sprintf("go.work uses %v; there are %v", uses, folders))
	}
	return wrong, nil
}

func TestVersions(t *testing.T) {
	wrong, err := checkVersions(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range wrong {
		t.Error(what)
	}
}

// `make version` changes all places, and the check finds each.
func TestMakeVersion(t *testing.T) {
	folder := t.TempDir()
	folders, err := modules(root)
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"Makefile", "go.work", versionFile}
	for _, m := range folders {
		files = append(files, path.Join(m, "go.mod"))
	}
	for _, file := range files {
		copyFile(t, filepath.Join(folder, file), filepath.Join(root, file))
	}
	const next = "v9.8.7"
	out, err := exec.Command("make", "-C", folder, "version", "V="+next).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if v, err := version(folder); err != nil || v != next {
		t.Errorf("the version is %q, %v", v, err)
	}
	if wrong, err := checkVersions(folder); err != nil || len(wrong) > 0 {
		t.Errorf("after make version: %q, %v", wrong, err)
	}
	for _, file := range files[2:] {
		if file == "go.mod" { // the root requires none of the others
			continue
		}
		copyFile(t, filepath.Join(folder, file), filepath.Join(root, file))
		if wrong, err := checkVersions(folder); err != nil || len(wrong) == 0 {
			t.Errorf("with an old %s nothing is found, %v", file, err)
		}
		if out, err := exec.Command("make", "-C", folder, "version", "V="+next).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if out, err := exec.Command("make", "-C", folder, "version", "V=1.2").CombinedOutput(); err == nil {
		t.Errorf("1.2 is taken: %s", out)
	}
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	write(t, to, string(text))
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
