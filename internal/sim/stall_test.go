package sim_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// stalling are the folders whose code is made to stand still: the library's, and the simulation's
// for its mutexes alone.
var stalling = []string{".", "internal/quorum", "internal/waitqueue", "internal/node", "internal/clock", "internal/sim"}

// notStalling are files that package context calls with a mutex of its own held.
var notStalling = []string{"internal/quorum/round.go"}

// stallPackage is what every statement calls, and a mutex on which a goroutine of a bubble may wait
// while virtual time goes by.
const stallPackage = `package stall

import "sync"

var Point = func() {}

type Mutex struct {
	mu     sync.Mutex
	free   *sync.Cond
	locked bool
}

func (m *Mutex) Lock() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.locked {
		if m.free == nil {
			m.free = sync.NewCond(&m.mu)
		}
		m.free.Wait()
	}
	m.locked = true
}

func (m *Mutex) TryLock() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.locked
	m.locked = true
	return !was
}

func (m *Mutex) Unlock() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.locked = false
	if m.free != nil {
		m.free.Signal()
	}
}
`

// stalled returns the text of a file with stallPoint called before each statement, unless
// mutexes: then only mutexes are replaced.
func stalled(t *testing.T, name, text string, mutexes bool) string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var at []int
	if !mutexes {
		ast.Inspect(file, func(n ast.Node) bool {
			var list []ast.Stmt
			switch n := n.(type) {
			case *ast.BlockStmt:
				list = n.List
			case *ast.CaseClause:
				list = n.Body
			case *ast.CommClause:
				list = n.Body
			}
			for _, s := range list {
				switch s.(type) {
				case *ast.CaseClause, *ast.CommClause:
				default:
					at = append(at, files.Position(s.Pos()).Offset)
				}
			}
			return true
		})
	}
	slices.Sort(at)
	var b strings.Builder
	last := 0
	for _, offset := range slices.Compact(at) {
		b.WriteString(text[last:offset])
		b.WriteString("stallPoint();")
		last = offset
	}
	b.WriteString(text[last:])
	changed := strings.ReplaceAll(b.String(), "sync.Mutex", "stallMutex")
	if !strings.Contains(strings.ReplaceAll(changed, "sync.Mutex", ""), "sync.") {
		changed = strings.Replace(changed, "\t\"sync\"\n", "\t_ \"sync\"\n", 1)
		changed = strings.Replace(changed, "import \"sync\"\n", "import _ \"sync\"\n", 1)
	}
	return changed
}

// stallTexts returns what is to be built in place of the library, of whose files some are changed
// already.
func stallTexts(t *testing.T, root string, changed map[string]string) map[string]string {
	t.Helper()
	texts := map[string]string{"internal/stall/stall.go": stallPackage}
	maps.Copy(texts, changed)
	for _, folder := range stalling {
		entries, err := os.ReadDir(filepath.Join(root, folder))
		if err != nil {
			t.Fatal(err)
		}
		clause := ""
		for _, entry := range entries {
			name := filepath.ToSlash(filepath.Join(folder, entry.Name()))
			if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				continue
			}
			text := changed[name]
			if text == "" {
				source, err := os.ReadFile(filepath.Join(root, name))
				if err != nil {
					t.Fatal(err)
				}
				text = string(source)
			}
			texts[name] = stalled(t, name, text, folder == "internal/sim" || slices.Contains(notStalling, name))
			clause = packageClause.FindString(text)
		}
		texts[filepath.ToSlash(filepath.Join(folder, "stalled.go"))] = clause + `

import "github.com/redlatch/redlatch/internal/stall"

func stallPoint() { stall.Point() }

type stallMutex = stall.Mutex

var _ = stallPoint
`
	}
	texts["internal/sim/stalling.go"] = `package sim

import "github.com/redlatch/redlatch/internal/stall"

func init() { setStall = func(f func()) { stall.Point = f } }
`
	return texts
}

// TestSimStalls builds the library so that its goroutines stand still between any two statements,
// in worlds of every weather: for milliseconds, or for longer than a TTL.
func TestSimStalls(t *testing.T) {
	if testing.Short() || simWorlds < 1000 {
		t.Skip("builds the library anew, and many worlds")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	binary := buildOver(t, t.TempDir(), root, stallTexts(t, root, nil))
	// One world at a time: a statement does not know which world it is in.
	r := &simRun{t: t, start: time.Now()}
	r.share(t, binary, 0, 1, fmt.Sprint("-sim.count=", *simStalls), "-sim.anywhere")
	t.Log(r)
	r.provesSomething()
}
