package house

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// rulesPage says which rules there are, and where each is kept.
const rulesPage = "docs/rules.md"

// unseenHeading is that of the rules that the simulation does not show.
const unseenHeading = "## What no world shows"

// Where the page's names are defined.
const (
	mutationsFile = "internal/sim/mutation.go"
	breachesFile  = "internal/sim/breach_test.go"
	elsewhereFile = "internal/sim/breach_elsewhere_test.go"
	modelTests    = "spec/spec_test.go"
	scriptsFolder = "internal/script/"
)

// rule is a line of the page.
type rule struct {
	id                  string
	files               []string // where it is marked, in order
	tests               []ruleTest
	macros, simulations []string
}

// ruleTest is a test of a rule.
type ruleTest struct{ function, folder string }

var (
	marker   = regexp.MustCompile(`(?m)^\s*(?://|--) rule: (\S+)\s*$`)
	testCell = regexp.MustCompile("^`(Test\\w+)`(?: in `([^`]+)`)?$")
	// mutationNames are the constants of the mutations, with what they do behind them.
	mutationNames = regexp.MustCompile(`(?m)^\t([A-Z]\w+) +// .+$`)
	breachNames   = regexp.MustCompile(`(?m)^\t\trule: "([^"]+)"`)
	// modelMacros are what the tests of the models define, but for sizes.
	modelMacros = regexp.MustCompile(`"(?:lock|token|admission|names|names_singly|names_token|shared|shared_token|shared_queue|permits)", \[\]string\{([^}]*)\}(?:, "\w+")?\}`)
	sizes       = []string{"N", "BLOCK", "PROPERTY", "SORTED", "ALIKE", "EVENTS", "ONE_NAME", "MAX", "READERS", "TTL", "TTL_OF_LAST", "MORTAL", "WHOLE", "CIRCLES", "CLIENTS"}
)

// parseRules reads the page's tables.
func parseRules(page string) (rules []rule, err error) {
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 8 {
			return nil, fmt.Errorf("%d cells in place of 8: %s", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		r := rule{id: strings.Trim(cells[0], "`"), files: list(cells[3]), macros: list(cells[5]), simulations: list(cells[7])}
		for _, script := range list(cells[4]) {
			r.files = append(r.files, scriptsFolder+script)
		}
		slices.Sort(r.files)
		for test := range strings.SplitSeq(cells[6], "<br>") {
			found := testCell.FindStringSubmatch(test)
			switch {
			case found != nil:
				r.tests = append(r.tests, ruleTest{found[1], path.Clean(found[2])})
			case cells[6] != "–":
				return nil, fmt.Errorf("%s names no test: %s", r.id, test)
			}
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// list are the names in a cell; what is not code keeps its quotes.
func list(cell string) (names []string) {
	if cell == "–" {
		return nil
	}
	for name := range strings.SplitSeq(cell, "<br>") {
		names = append(names, strings.Trim(name, "`"))
	}
	return names
}

// checkRules says in what the page and the project disagree.
func checkRules(project fs.FS) (wrong []string, err error) {
	page, err := fs.ReadFile(project, rulesPage)
	if err != nil {
		return nil, err
	}
	rules, err := parseRules(string(page))
	if err != nil {
		return nil, err
	}
	p, err := readProject(project)
	if err != nil {
		return nil, err
	}
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }

	_, unseen, _ := strings.Cut(string(page), unseenHeading)
	listed, used := make(map[string]bool), make(map[string]bool)
	for _, r := range rules {
		if listed[r.id] {
			say("%s is listed twice", r.id)
		}
		listed[r.id] = true
		if marked := p.marked[r.id]; !slices.Equal(marked, r.files) {
			say("%s is listed for %q and marked in %q", r.id, r.files, marked)
		}
		if len(r.simulations) == 0 && !strings.Contains(unseen, "`"+r.id+"`") {
			say("%s has no mutation, and is not under %q", r.id, unseenHeading)
		}
		for _, test := range r.tests {
			if !slices.Contains(p.tests[test.folder], test.function) {
				say("%s: there is no %s in %s", r.id, test.function, test.folder)
			}
		}
		for _, name := range slices.Concat(r.macros, r.simulations) {
			used[name] = true
		}
		for _, macro := range r.macros {
			if !slices.Contains(p.macros, macro) {
				say("%s: no test of a model defines %s", r.id, macro)
			} else if !regexp.MustCompile(`\b` + macro + `\b`).MatchString(p.models) {
				say("%s: no model knows %s", r.id, macro)
			}
		}
		for _, name := range r.simulations {
			if !slices.Contains(p.simulations, name) {
				say("%s: the simulation has no mutation %s", r.id, name)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.marked)) {
		if !listed[id] {
			say("%s is marked in %q and not listed", id, p.marked[id])
		}
	}
	for _, name := range slices.Concat(p.macros, p.simulations) {
		if !used[name] {
			say("the mutation %s is of no rule", name)
		}
	}
	return wrong, nil
}

// project is what the page can name.
type project struct {
	marked map[string][]string // the files of each rule, in order
	tests  map[string][]string // by folder
	models string
	// macros and simulations are the mutations of the models and of the simulation.
	macros, simulations []string
}

func readProject(files fs.FS) (*project, error) {
	p := &project{marked: make(map[string][]string), tests: make(map[string][]string)}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped(d.Name()):
			return fs.SkipDir
		case d.IsDir() || !slices.Contains([]string{".go", ".lua", ".pml"}, path.Ext(name)):
			return nil
		}
		data, err := fs.ReadFile(files, name)
		text := string(data)
		switch {
		case strings.HasSuffix(name, "_test.go"):
			for _, found := range function.FindAllStringSubmatch(text, -1) {
				p.tests[path.Dir(name)] = append(p.tests[path.Dir(name)], found[1])
			}
		case path.Ext(name) == ".pml":
			p.models += text
		default:
			for _, found := range marker.FindAllStringSubmatch(text, -1) {
				if !slices.Contains(p.marked[found[1]], name) {
					p.marked[found[1]] = append(p.marked[found[1]], name)
				}
			}
		}
		switch name {
		case mutationsFile:
			for _, found := range mutationNames.FindAllStringSubmatch(text, -1) {
				if found[1] != "Mutations" {
					p.simulations = append(p.simulations, found[1])
				}
			}
		case breachesFile, elsewhereFile:
			for _, found := range breachNames.FindAllStringSubmatch(text, -1) {
				p.simulations = append(p.simulations, `"`+found[1]+`"`)
			}
		case modelTests:
			p.macros = macrosOf(text)
		}
		return err
	})
	return p, err
}

// macrosOf are the rules that the tests of the models turn off.
func macrosOf(tests string) (macros []string) {
	for _, found := range modelMacros.FindAllStringSubmatch(tests, -1) {
		for definition := range strings.SplitSeq(found[1], ", ") {
			name, _, _ := strings.Cut(strings.Trim(definition, `"`), "=")
			if !slices.Contains(sizes, name) && !slices.Contains(macros, name) {
				macros = append(macros, name)
			}
		}
	}
	return macros
}

// skipped reports whether a folder is not the project's own.
func skipped(folder string) bool {
	return folder == "node_modules" || folder == "testdata" || len(folder) > 1 && strings.HasPrefix(folder, ".")
}

// Every rule is where docs/rules.md says, and every mark is in it.
func TestRules(t *testing.T) {
	wrong, err := checkRules(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range wrong {
		t.Error(what)
	}
}

// The check finds what is wrong with a project.
func TestRulesCheck(t *testing.T) {
	const (
		head = "| rule | says | from | code | Lua | model | test | simulation |\n|---|---|---|---|---|---|---|---|\n"
		good = "| `one` | It holds | R | `a.go` | `a.lua` | `NO_ONE` | `TestOne` in `b` | `Oneless`<br>\"it holds\" |\n"
	)
	files := map[string]string{
		rulesPage: head + good, "a.go": "package a\n\n// rule: one\n", scriptsFolder + "a.lua": "  -- rule: one\n", "b/b_test.go": "func TestOne(t *testing.T) {}\n",
		"spec/a.pml": "#ifdef NO_ONE\n", modelTests: `{"none", "lock", []string{"N=4", "NO_ONE"}, "exclusive"},`,
		mutationsFile: "const (\n\tNone Mutation = iota\n\tOneless  // one is not kept\n\n\tMutations // how many\n)\n", breachesFile: "\t\trule: \"it holds\", file: \"a.go\",\n",
	}
	for name, tt := range map[string]struct {
		file, was, now string
		want           string
	}{
		"all is well":        {},
		"no mark":            {"a.go", "// rule: one", "// one", `one is listed for ["a.go" "internal/script/a.lua"] and marked in ["internal/script/a.lua"]`},
		"no mark in Lua":     {scriptsFolder + "a.lua", "-- rule: one", "", `one is listed for ["a.go" "internal/script/a.lua"] and marked in ["a.go"]`},
		"not listed":         {"a.go", "// rule: one", "// rule: one\n// rule: two", `two is marked in ["a.go"] and not listed`},
		"marked elsewhere":   {"b/b.go", "", "// rule: one\n", `one is listed for ["a.go" "internal/script/a.lua"] and marked in ["a.go" "b/b.go" "internal/script/a.lua"]`},
		"listed twice":       {rulesPage, good, good + good, "one is listed twice"},
		"a cell is missing":  {rulesPage, " | R |", " |", "7 cells in place of 8: | `one` "},
		"no test":            {"b/b_test.go", "TestOne", "TestTwo", "one: there is no TestOne in b"},
		"test elsewhere":     {rulesPage, "`TestOne` in `b`", "`TestOne`", "one: there is no TestOne in ."},
		"a test in words":    {rulesPage, "`TestOne` in `b`", "many", "one names no test: many"},
		"no second test":     {rulesPage, "`TestOne` in `b`", "`TestOne` in `b`<br>`TestTwo` in `b`", "one: there is no TestTwo in b"},
		"a second in words":  {rulesPage, "`TestOne` in `b`", "`TestOne` in `b`<br>many", "one names no test: many"},
		"no such macro":      {"spec/a.pml", "NO_ONE", "NO_TWO", "one: no model knows NO_ONE"},
		"macro not defined":  {modelTests, "NO_ONE", "NO_TWO", "one: no test of a model defines NO_ONE"},
		"a macro of no rule": {modelTests, `"NO_ONE"`, `"NO_ONE", "NO_TWO"`, "the mutation NO_TWO is of no rule"},
		"no mutation":        {rulesPage, "`Oneless`<br>\"it holds\"", "–", `one has no mutation, and is not under "## What no world shows"`},
		"no such mutation":   {mutationsFile, "Oneless", "Twoless", "one: the simulation has no mutation Oneless"},
		"no such breach":     {breachesFile, "it holds", "it breaks", `one: the simulation has no mutation "it holds"`},
		"a mutation of none": {mutationsFile, "\n\tMut", "\tTwoless // two is not kept\n\tMut", "the mutation Twoless is of no rule"},
	} {
		t.Run(name, func(t *testing.T) {
			project := make(fstest.MapFS)
			for file, text := range files {
				project[file] = &fstest.MapFile{Data: []byte(text)}
			}
			if tt.file != "" {
				text := files[tt.file]
				if !strings.Contains(text, tt.was) {
					t.Fatalf("%s has no %q", tt.file, tt.was)
				}
				project[tt.file] = &fstest.MapFile{Data: []byte(strings.Replace(text, tt.was, tt.now, 1))}
			}
			wrong, err := checkRules(project)
			if err != nil {
				wrong = append(wrong, err.Error())
			}
			if tt.want == "" && len(wrong) > 0 || tt.want != "" && !slices.ContainsFunc(wrong, func(s string) bool { return strings.HasPrefix(s, tt.want) }) {
				t.Errorf("said %q, want %q", wrong, tt.want)
			}
		})
	}
}
