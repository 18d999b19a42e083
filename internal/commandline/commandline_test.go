package commandline

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

type common struct {
	Nodes []string      `env:"CL_NODES" default:"here" placeholder:"URL" help:"Where."`
	Wait  time.Duration `short:"w" env:"CL_WAIT" default:"10s" placeholder:"D" help:"How long."`
}

type testRun struct {
	common
	NoWait  bool     `short:"n" xor:"how" help:"Do not wait."`
	Loud    bool     `short:"l" xor:"how" help:"Be loud."`
	Code    *int     `short:"E" help:"The code."`
	Seed    uint64   `aliases:"start,origin" help:"The seed."`
	Name    string   `arg:"" help:"The name."`
	Command []string `arg:"" optional:"" passthrough:"" help:"The command."`
}

func (*testRun) Help() string { return "It runs.\n\nCodes:\n\n\t0  well\n\t1  not" }

type testList struct {
	Pattern string `arg:"" optional:"" default:"*" help:"Which."`
}

type testAdd struct {
	Kind  string   `arg:"" enum:"a,b" help:"What kind."`
	Words []string `arg:"" optional:"" help:"Words."`
}

type testFiles struct {
	Files []int `arg:"" help:"Numbers."`
}

type testProgram struct {
	Files testFiles `cmd:"" hidden:""`
	Run   testRun   `cmd:"" help:"Run it."`
	List  testList  `cmd:"" help:"List them."`
	Set   struct {
		Add testAdd `cmd:"" help:"Add one."`
	} `cmd:"" help:"Change them."`
	Secret testList `cmd:"" name:"secret-process" hidden:""`
}

func parse(t *testing.T, args ...string) (*testProgram, *Command, error) {
	t.Helper()
	root := new(testProgram)
	c, err := New("prog", "A program.", root, map[string][]Example{"run": {{"once", "prog run x"}}}).Parse(args)
	return root, c, err
}

// What is given, in each of the ways to write it, comes to where it belongs.
func TestParse(t *testing.T) {
	three := 3
	base := common{[]string{"here"}, 10 * time.Second}
	for line, want := range map[string]testRun{
		"run x":                   {common: base, Name: "x"},
		"run -w5 x":               {common: common{base.Nodes, 5 * time.Second}, Name: "x"},
		"run -w=5 x":              {common: common{base.Nodes, 5 * time.Second}, Name: "x"},
		"run --wait 500ms x":      {common: common{base.Nodes, 500 * time.Millisecond}, Name: "x"},
		"run --wait=-1s x":        {common: common{base.Nodes, -time.Second}, Name: "x"},
		"run -w -1 x":             {common: common{base.Nodes, -time.Second}, Name: "x"},
		"run -nw5 x":              {common: common{base.Nodes, 5 * time.Second}, NoWait: true, Name: "x"},
		"run x -E 3":              {common: base, Code: &three, Name: "x"},
		"run --seed 7 x":          {common: base, Seed: 7, Name: "x"},
		"run --origin=7 x":        {common: base, Seed: 7, Name: "x"},
		"run --nodes a,b x":       {common: common{[]string{"a", "b"}, base.Wait}, Name: "x"},
		"run --nodes= x":          {common: common{nil, base.Wait}, Name: "x"},
		"run x -- ls -l --wait 3": {common: base, Name: "x", Command: strings.Fields("-- ls -l --wait 3")},
		"run x ls -l":             {common: base, Name: "x", Command: strings.Fields("ls -l")},
		"run x -l -- -n":          {common: base, Loud: true, Name: "x", Command: strings.Fields("-- -n")},
		"run -- ls -l":            {common: base, Name: "ls", Command: []string{"-l"}},
		"run -- ls --":            {common: base, Name: "ls", Command: []string{"--"}},
	} {
		got, c, err := parse(t, strings.Fields(line)...)
		if err != nil || c.Path() != "run" || !reflect.DeepEqual(got.Run, want) {
			t.Errorf("%s: %s: %+v, %v, want %+v", line, c.Path(), got.Run, err, want)
		}
	}
	got, c, err := parse(t, "set", "add", "b", "one", "two")
	if err != nil || c.FullPath() != "prog set add" || c.Target != any(&got.Set.Add) || got.Set.Add.Kind != "b" || len(got.Set.Add.Words) != 2 {
		t.Errorf("%+v, %v", got.Set.Add, err)
	}
	if got, _, err := parse(t, "files", "3", "4"); err != nil || !slices.Equal(got.Files.Files, []int{3, 4}) {
		t.Errorf("%+v, %v", got.Files, err)
	}
	if got, _, err := parse(t, "list"); err != nil || got.List.Pattern != "*" {
		t.Errorf("%+v, %v", got.List, err)
	}
}

// Variables stand for flags that are not given; an empty one does for a list alone.
func TestParseEnvironment(t *testing.T) {
	t.Setenv("CL_NODES", "")
	t.Setenv("CL_WAIT", "")
	if got, _, err := parse(t, "run", "x"); err != nil || len(got.Run.Nodes) != 0 || got.Run.Wait != 10*time.Second {
		t.Errorf("%+v, %v", got.Run, err)
	}
	t.Setenv("CL_NODES", "a,b")
	t.Setenv("CL_WAIT", "3")
	if got, _, err := parse(t, "run", "x", "--nodes", "c"); err != nil || !reflect.DeepEqual(got.Run.common, common{[]string{"c"}, 3 * time.Second}) {
		t.Errorf("%+v, %v", got.Run, err)
	}
	t.Setenv("CL_WAIT", "long")
	if _, _, err := parse(t, "run", "x"); err == nil || !strings.HasPrefix(err.Error(), `CL_WAIT: "long" is no duration`) {
		t.Error(err)
	}
	if _, _, err := parse(t, "run", "x", "-w", "1"); err != nil {
		t.Error(err)
	}
}

// What is wrong is said, with the command that it is of.
func TestParseErrors(t *testing.T) {
	for line, want := range map[string][2]string{
		"":                      {"", "no command: give run, list or set"},
		"rum x":                 {"", "unknown command rum: did you mean run?"},
		"secret-proces":         {"", "unknown command secret-proces"},
		"set":                   {"set", "no command: give add"},
		"set ad":                {"set", "unknown command ad: did you mean add?"},
		"files":                 {"files", "no <files>"},
		"files 3 x":             {"files", `<files>: "x" is no whole number`},
		"set add":               {"set add", "no <kind>"},
		"set add c":             {"set add", `<kind> is "c": it must be a or b`},
		"run":                   {"run", "no <name>"},
		"list a b":              {"list", "unexpected argument b"},
		"run --wai x":           {"run", "unknown flag --wai: did you mean --wait?"},
		"run --wiat x":          {"run", "unknown flag --wiat: did you mean --wait?"},
		"run --nothing=x x":     {"run", "unknown flag --nothing"},
		"run -nz x":             {"run", "unknown flag -z"},
		"run x --wait":          {"run", "--wait has no value: --wait=D"},
		"run -w":                {"run", "-w has no value: -w=D"},
		"run -w x x":            {"run", `-w: "x" is no duration: give seconds, such as 10 or 0.5, or 500ms, 1m30s, 2h`},
		"run -E many x":         {"run", `-E: "many" is no whole number`},
		"run --seed -1 x":       {"run", `--seed: "-1" is no whole number, 0 or more`},
		"run --no-wait=perhaps": {"run", `--no-wait: "perhaps" is neither true nor false`},
		"run x --helpless":      {"run", "unknown flag --helpless"},
		"run -n -l x":           {"run", "--no-wait and --loud are given: give one of them"},
		"--wait 3 run x":        {"", "unknown flag --wait"},
	} {
		_, c, err := parse(t, strings.Fields(line)...)
		if at, ok := errors.AsType[*Error](err); !ok || err.Error() != want[1] || at.Command != c || c.Path() != want[0] {
			t.Errorf("%s: %v, of %q", line, err, c.Path())
		}
	}
}

// Help is shown whatever else is wrong, and the version wherever it is asked for.
func TestParseHelp(t *testing.T) {
	for line, want := range map[string]error{
		"--help": ErrHelp, "-h": ErrHelp, "run -h": ErrHelp, "run --nodes x --help": ErrHelp, "set add --help": ErrHelp,
		"--version": ErrVersion, "run --version": ErrVersion,
	} {
		if _, _, err := parse(t, strings.Fields(line)...); !errors.Is(err, want) {
			t.Errorf("%s: %v", line, err)
		}
	}
	if _, _, err := parse(t, "run", "x", "--", "ls", "--help"); err != nil {
		t.Error(err)
	}
}

func TestHelp(t *testing.T) {
	_, run, _ := parse(t, "run", "--help")
	var b bytes.Buffer
	if err := run.WriteHelp(&b); err != nil {
		t.Fatal(err)
	}
	want := `Usage: prog run <name> [<command> ...] [flags]

Run it.

It runs.

Codes:

    0  well
    1  not

Arguments:
  <name>                        The name.
  <command>                     The command.

Flags:
  -h, --help                    Show the help of the command.
      --nodes=URL,...           Where ($CL_NODES).
  -w, --wait=D                  How long ($CL_WAIT).
  -n, --no-wait                 Do not wait.
  -l, --loud                    Be loud.
  -E, --code=CODE               The code.
      --seed=SEED               The seed.

Examples:
  # once
  prog run x
`
	if b.String() != want {
		t.Errorf("got:\n%s", b.String())
	}
	b.Reset()
	_, root, _ := parse(t, "--help")
	if err := root.WriteHelp(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"Usage: prog <command> [flags]", "      --version ", "  run <name> [<command> ...] [flags]\n    Run it.", "  set add <kind> [<words> ...] [flags]"} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no %q in:\n%s", line, b.String())
		}
	}
	if strings.Contains(b.String(), "secret") {
		t.Errorf("hidden:\n%s", b.String())
	}
}

// A line of a help is no longer than a terminal is wide.
func TestHelpIsWrapped(t *testing.T) {
	lines := wrapped(strings.Repeat("seven7 ", 40), 48)
	if len(lines) < 6 || strings.Join(lines, " ") != strings.TrimSpace(strings.Repeat("seven7 ", 40)) {
		t.Errorf("%q", lines)
	}
	for _, line := range lines {
		if len(line) > 48 {
			t.Errorf("%q", line)
		}
	}
}

func TestRedacted(t *testing.T) {
	hide := func(string) string { return "HIDDEN" }
	for arg, want := range map[string]string{
		"redis://u:p@h":             "unexpected argument HIDDEN",
		"--nodes=redis://u:p@h":     "unexpected argument --nodes=HIDDEN",
		"redis://u:a,b@h,redis://x": "unexpected argument …",
		"job":                       "unexpected argument job",
	} {
		if got := Redacted(errors.New("unexpected argument "+arg), []string{"show", arg}, hide).Error(); got != want {
			t.Errorf("%s: %s", arg, got)
		}
	}
}
