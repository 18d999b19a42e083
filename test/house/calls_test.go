package house

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// order has the files of the root package from the lowest to the highest: a function is called
// from its own file and from higher ones.
var order = []string{
	"doc.go", "errors.go", "endpoint.go", "config.go", "holder.go", "succeed.go", "events.go", "store.go", "client.go", "option.go",
	"lock.go", "context.go", "release.go", "renewal.go", "several.go", "permit.go", "call.go", "wait.go", "singly.go", "acquire.go",
	"campaign.go", "observe.go", "list.go", "close.go", "hook.go", "admin.go",
}

// upward are the calls that go up nevertheless. None may be added.
var upward = []string{}

// nothing imports nothing: the calls inside a package are known without.
type nothing struct{}

func (nothing) Import(string) (*types.Package, error) { return nil, errors.New("not looked at") }

// checkCalls says which calls in the folder's package go up.
func checkCalls(project fs.FS, order []string) (up []string, err error) {
	names, err := fs.Glob(project, "*.go")
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if !slices.Contains(order, name) {
			return nil, fmt.Errorf("%s has no place in the order", name)
		}
		text, err := fs.ReadFile(project, name)
		if err != nil {
			return nil, err
		}
		parsed, err := parser.ParseFile(set, name, text, 0)
		if err != nil {
			return nil, err
		}
		files = append(files, parsed)
	}
	for _, name := range order {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("%s is in the order, and not there", name)
		}
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: nothing{}, Error: func(error) {}} // what is imported is not known
	config.Check("redlatch", set, files, info)

	floor := func(p token.Pos) (string, int) {
		name := filepath.Base(set.Position(p).Filename)
		return name, slices.Index(order, name)
	}
	found := make(map[string]bool)
	for at, object := range info.Uses {
		called, ok := object.(*types.Func)
		if !ok || !called.Pos().IsValid() {
			continue
		}
		from, low := floor(at.Pos())
		to, high := floor(called.Pos())
		if high > low {
			found[fmt.Sprintf("%s calls %s of %s", from, called.Name(), to)] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// No call goes from a lower file of the root to a higher one.
func TestCalls(t *testing.T) {
	up, err := checkCalls(os.DirFS(root), order)
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range up {
		if !slices.Contains(upward, call) {
			t.Errorf("%s, which is higher", call)
		}
	}
	for _, call := range upward {
		if !slices.Contains(up, call) {
			t.Errorf("%s: not any more, so it needs no exception", call)
		}
	}
}

func TestCallsCheck(t *testing.T) {
	project := fstest.MapFS{
		"low.go":       {Data: []byte("package p\nimport \"unknown\"\ntype Low struct{ unknown.Thing; high *High }\nfunc (l *Low) Do() { l.high.Do(); l.own(); free() }\nfunc (l *Low) own() {}")},
		"high.go":      {Data: []byte("package p\ntype High struct{ low *Low }\nfunc (h *High) Do() { h.low.own() }\nfunc free() {}")},
		"high_test.go": {Data: []byte("package p\nfunc test() { new(Low).Do() }")},
	}
	up, err := checkCalls(project, []string{"low.go", "high.go"})
	if want := []string{"low.go calls Do of high.go", "low.go calls free of high.go"}; err != nil || !slices.Equal(up, want) {
		t.Errorf("%q, %v, want %q", up, err, want)
	}
	up, err = checkCalls(project, []string{"high.go", "low.go"})
	if want := []string{"high.go calls own of low.go"}; err != nil || !slices.Equal(up, want) {
		t.Errorf("%q, %v, want %q", up, err, want)
	}
	for _, order := range [][]string{{"low.go"}, {"low.go", "high.go", "other.go"}} {
		if _, err := checkCalls(project, order); err == nil {
			t.Errorf("the order %q says nothing of a file", order)
		}
	}
}
