package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// configPage has a line for each setting.
const configPage = "docs/config.md"

// settings are the exported fields of Config, with those of a struct of this file in place of
// the field of its type.
func settings(t *testing.T, source any) (names []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "config.go"), source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	structs := make(map[string]*ast.StructType)
	ast.Inspect(parsed, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if s, ok := spec.Type.(*ast.StructType); ok {
				structs[spec.Name.Name] = s
			}
		}
		return true
	})
	var add func(prefix string, s *ast.StructType)
	add = func(prefix string, s *ast.StructType) {
		for _, field := range s.Fields.List {
			for _, name := range field.Names {
				inner, ours := field.Type.(*ast.Ident)
				switch {
				case !name.IsExported():
				case ours && structs[inner.Name] != nil:
					add(prefix+name.Name+".", structs[inner.Name])
				default:
					names = append(names, prefix+name.Name)
				}
			}
		}
	}
	add("", structs["Config"])
	return names
}

// Every setting has a line in the documentation, and every line is of a setting.
func TestSettingsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, configPage))
	if err != nil {
		t.Fatal(err)
	}
	names := settings(t, nil)
	for _, name := range names {
		if !strings.Contains(string(page), "\n| `"+name+"` |") {
			t.Errorf("%s has no line for %s", configPage, name)
		}
	}
	if lines := strings.Count(string(page), "\n| `"); lines != len(names) {
		t.Errorf("%s has %d lines for %d settings", configPage, lines, len(names))
	}
}

func TestSettingsCheck(t *testing.T) {
	got := settings(t, "package p\ntype Config struct { A, B int; C Inner; D Other; e int }\ntype Inner struct { G int }\n")
	if want := "A B C.G D"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}
