package house

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// module is the path of the project's root module; the other modules' paths begin with it.
const module = "github.com/redlatch/redlatch"

// leaves are packages that all may use, and that use nothing but each other.
var leaves = []string{
	"internal/clock", "internal/hashslot", "internal/printable", "internal/script", "internal/vote",
}

// forTests are packages for tests, and for the tool, which starts servers. No user of the library
// gets them.
var forTests = []string{
	"internal/driver/drivertest", "internal/ensembletest", "internal/locktest", "internal/locktest/conformance", "internal/locktest/enginetest", "internal/markdown", "internal/redistest", "internal/seed", "internal/storm", "internal/torture/worker", "internal/urltest", "test/faults", "test/guides", "test/house",
	"test/locking", "test/release", "test/restart", "test/topology", "test/waiting",
}

// allowed are the packages of this project that each package may import beside the leaves. The
// direction is: face, then wait queue, vote, node, driver; "." is the face.
var allowed = map[string][]string{
	".": {
		"internal/waitqueue", "internal/quorum", "internal/node", "internal/admission", "internal/redisconn", "internal/driver", "internal/hook",
		"internal/listing", "internal/observe",
	},
	"internal/listing":   {"internal/admission", "internal/driver", "internal/node", "internal/quorum"},
	"internal/observe":   {"internal/node", "internal/quorum"},
	"internal/waitqueue": {"internal/quorum"},
	"internal/quorum":    {},
	"internal/node":      {"internal/admission", "internal/driver", "internal/redisconn"},
	"internal/admission": {},
	"internal/redisconn": {"internal/driver"},
	"internal/driver":    {},
	"internal/hook":      {"internal/driver", "internal/node", "internal/quorum"},

	// Faces of their own.
	"oneshot": {".", "internal/hook", "internal/node", "internal/quorum"},
	"doctor":  {".", "internal/hook", "internal/node"},
	"fence":   {},
	"goredis": {".", "internal/driver", "internal/hook", "internal/redisconn"},
	"legacy":  {".", "internal/driver", "internal/redisconn"},
	"otel":    {"."},

	"internal/ensemble": {".", "internal/hook"},
	"etcd":              {".", "doctor", "internal/ensemble", "internal/hook", "internal/quorum"},
	"zookeeper":         {".", "doctor", "internal/ensemble", "internal/hook", "internal/quorum"},

	"redlatchtest":    {".", "internal/driver", "internal/hook", "internal/memory", "internal/node"},
	"internal/memory": {"internal/driver"},

	"cmd/internal/commandline":                      {"internal/redisconn"},
	"cmd/redlatch":                                  {".", "oneshot", "doctor", "etcd", "zookeeper", "cmd/internal/commandline", "internal/admission", "internal/driver", "internal/ensemble", "internal/hook", "internal/redisconn"},
	"cmd/redlatch-torture":                          {".", "cmd/internal/commandline", "cmd/redlatch-torture/internal/demo", "cmd/redlatch-torture/internal/torture", "cmd/redlatch-torture/internal/torture/report"},
	"cmd/redlatch-torture/internal/demo":            {".", "internal/redistest", "cmd/redlatch-torture/internal/engine", "cmd/redlatch-torture/internal/spawn"},
	"cmd/redlatch-torture/internal/engine":          {".", "etcd", "zookeeper", "internal/redistest", "cmd/redlatch-torture/internal/spawn"},
	"cmd/redlatch-torture/internal/spawn":           {},
	"cmd/redlatch-torture/internal/torture":         {".", "fence", "internal/admission", "internal/node", "internal/quorum", "internal/redisconn", "internal/redistest", "internal/torture/worker", "cmd/redlatch-torture/internal/engine", "cmd/redlatch-torture/internal/spawn", "cmd/redlatch-torture/internal/torture/history", "cmd/redlatch-torture/internal/torture/judge", "cmd/redlatch-torture/internal/torture/report"},
	"cmd/redlatch-torture/internal/torture/history": {"internal/torture/worker"},
	"cmd/redlatch-torture/internal/torture/judge":   {"cmd/redlatch-torture/internal/torture/history"},
	"cmd/redlatch-torture/internal/torture/report":  {"cmd/redlatch-torture/internal/torture/history", "cmd/redlatch-torture/internal/torture/judge"},
	"examples/cron-once":                            {"."},
	"examples/gocron":                               {"."},
	"otel/examples/prometheus":                      {".", "otel"},
	"examples/testing":                              {"."},
	"bench":                                         {},
	"bench/figures":                                 {},
	"bench/report":                                  {"bench/figures"},
	"interop":                                       {},
	"fence/guardtest":                               {},
	"bench/torture":                                 {},
	"bench/torture/redsync":                         {"internal/torture/worker"},
	"internal/driver/drivertest":                    {"internal/driver", "internal/redistest", "internal/seed"},
	"internal/ensembletest":                         {"internal/redistest"},
	"internal/locktest":                             {".", "doctor", "internal/clock", "internal/hook", "internal/redistest", "internal/storm"},
	"internal/locktest/conformance":                 {".", "internal/locktest", "internal/storm"},
	"internal/locktest/enginetest":                  {".", "doctor", "fence", "internal/ensembletest", "internal/locktest", "internal/redistest", "oneshot"},
	"internal/markdown":                             {},
	"internal/redistest":                            {},
	"internal/seed":                                 {},
	"internal/sim":                                  {"internal/driver", "internal/hook", "internal/sim/server"},
	"internal/sim/server":                           {"internal/driver"},
	"internal/storm":                                {".", "internal/redistest", "internal/seed"},
	"internal/torture/worker":                       {},
	"internal/urltest":                              {},
	"spec":                                          {},
	"test/faults":                                   {},
	"test/guides":                                   {},
	"test/house":                                    {},
	"test/locking":                                  {},
	"test/release":                                  {},
	"test/restart":                                  {},
	"test/topology":                                 {},
	"test/waiting":                                  {},
}

// goFiles are the project's Go files, by path.
func goFiles(project fs.FS) (files map[string][]byte, err error) {
	files = make(map[string][]byte)
	err = fs.WalkDir(project, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped(d.Name()):
			return fs.SkipDir
		case !d.IsDir() && path.Ext(name) == ".go":
			files[name], err = fs.ReadFile(project, name)
		}
		return err
	})
	return files, err
}

// checkImports says what is imported that may not be.
func checkImports(project fs.FS) (wrong []string, err error) {
	files, err := goFiles(project)
	if err != nil {
		return nil, err
	}
	for name, text := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			return nil, err
		}
		folder := path.Dir(name)
		may, known := allowed[folder]
		if !known && !slices.Contains(leaves, folder) {
			wrong = append(wrong, folder+" is not in the table of imports")
		}
		if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "misc"}, parsed.Name.Name) {
			wrong = append(wrong, fmt.Sprintf("%s: package %s says nothing of what is in it", name, parsed.Name.Name))
		}
		for _, spec := range parsed.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return nil, err
			}
			rest, ours := strings.CutPrefix(target, module)
			if !ours {
				continue
			}
			if target = strings.TrimPrefix(rest, "/"); target == "" {
				target = "."
			}
			if !slices.Contains(leaves, target) && !slices.Contains(may, target) {
				wrong = append(wrong, fmt.Sprintf("%s imports %s, which %s may not", name, target, folder))
			}
		}
	}
	return wrong, nil
}

// Imports point one way.
func TestImports(t *testing.T) {
	wrong, err := checkImports(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range wrong {
		t.Error(what)
	}
	for _, folder := range slices.Concat(leaves, forTests) {
		if _, err := os.Stat(path.Join(root, folder)); err != nil {
			t.Error(err)
		}
	}
	for folder, may := range allowed {
		for _, target := range may {
			if _, err := os.Stat(path.Join(root, target)); err != nil {
				t.Error(err)
			}
			// The library is what is not for tests, nor a program.
			program := strings.HasPrefix(folder, "cmd/") || strings.HasPrefix(folder, "bench/")
			if slices.Contains(forTests, target) && !program && !slices.Contains(forTests, folder) {
				t.Errorf("%s may import %s, which is for tests", folder, target)
			}
		}
	}
}

func TestImportsCheck(t *testing.T) {
	for name, tt := range map[string]struct{ file, text, want string }{
		"down":         {"internal/node/a.go", `package node; import "github.com/redlatch/redlatch/internal/driver"`, ""},
		"a leaf":       {"internal/quorum/a.go", `package quorum; import "github.com/redlatch/redlatch/internal/vote"`, ""},
		"others'":      {"internal/clock/a.go", `package clock; import "time"`, ""},
		"a test":       {"internal/clock/a_test.go", `package clock; import "github.com/redlatch/redlatch"`, ""},
		"up":           {"internal/driver/a.go", `package driver; import "github.com/redlatch/redlatch/internal/node"`, "internal/driver/a.go imports internal/node, which internal/driver may not"},
		"to the face":  {"internal/node/a.go", `package node; import "github.com/redlatch/redlatch"`, "internal/node/a.go imports ., which internal/node may not"},
		"past a layer": {"internal/waitqueue/a.go", `package waitqueue; import "github.com/redlatch/redlatch/internal/node"`, "internal/waitqueue/a.go imports internal/node, which internal/waitqueue may not"},
		"from a leaf":  {"internal/vote/a.go", `package vote; import "github.com/redlatch/redlatch/internal/driver"`, "internal/vote/a.go imports internal/driver, which internal/vote may not"},
		"a new folder": {"internal/new/a.go", `package new`, "internal/new is not in the table of imports"},
		"an old name":  {"internal/node/a.go", `package util`, "internal/node/a.go: package util says nothing of what is in it"},
	} {
		t.Run(name, func(t *testing.T) {
			wrong, err := checkImports(fstest.MapFS{tt.file: {Data: []byte(tt.text)}})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(wrong, "\n"); got != tt.want {
				t.Errorf("said %q, want %q", got, tt.want)
			}
		})
	}
}

// longest is how many lines a file may have, tests too.
const longest = 500

// checkLengths says which files are too long.
func checkLengths(project fs.FS) (wrong []string, err error) {
	files, err := goFiles(project)
	if err != nil {
		return nil, err
	}
	for name, text := range files {
		if lines := bytes.Count(text, []byte("\n")); lines > longest {
			wrong = append(wrong, fmt.Sprintf("%s has %d lines, of at most %d", name, lines, longest))
		}
	}
	slices.Sort(wrong)
	return wrong, nil
}

// No file is longer than what can be read in one go.
func TestLengths(t *testing.T) {
	wrong, err := checkLengths(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range wrong {
		t.Error(what)
	}
}

func TestLengthsCheck(t *testing.T) {
	lines := func(n int) *fstest.MapFile { return &fstest.MapFile{Data: bytes.Repeat([]byte("\n"), n)} }
	wrong, err := checkLengths(fstest.MapFS{"a.go": lines(longest), "b.go": lines(longest + 1), "c_test.go": lines(longest + 1), "d.lua": lines(longest + 1)})
	if want := []string{"b.go has 501 lines, of at most 500", "c_test.go has 501 lines, of at most 500"}; err != nil || !slices.Equal(wrong, want) {
		t.Errorf("said %q, %v, want %q", wrong, err, want)
	}
}
