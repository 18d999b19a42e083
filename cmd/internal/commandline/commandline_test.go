package commandline

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// parsed is what the test's program has its flags and arguments in.
type parsed struct {
	Nodes         []string
	Wait          time.Duration
	Code          *int
	Seed          uint64
	Loud, Hushed  bool
	Name, Pattern string
}

// parse has the program that the tests have parse a line.
func parse(words ...string) (p parsed, at *cobra.Command, err error) {
	nothing := func(*cobra.Command, []string) {}
	program := &cobra.Command{Use: "prog <command>", Short: "A program."}
	run := &cobra.Command{Use: "run <name> [<pattern>]", Short: "Run it.", Long: "It runs.\n\nCodes:\n\n\t0  well\n\t1  not", Example: "  # once\n  prog run x\n", Args: Arguments(&p.Name, &p.Pattern), Run: nothing}
	p.Wait = 10 * time.Second
	run.Flags().Var(List(&p.Nodes), "nodes", "Where, `URL,...`.")
	run.Flags().VarP(Duration(&p.Wait), "wait", "w", "How long"+strings.Repeat(", and on", 12)+".")
	run.Flags().VarP(Optional(&p.Code, Int), "code", "E", "The code.")
	run.Flags().Var(Uint(&p.Seed), "seed", "The seed.")
	Bool(run.Flags(), &p.Loud, "loud", "l", "Be loud.")
	Bool(run.Flags(), &p.Hushed, "hushed", "", "Be quiet.")
	run.Flags().Lookup("hushed").Hidden = true
	set := &cobra.Command{Use: "set <command>", Short: "Change them."}
	set.AddCommand(&cobra.Command{Use: "add <kind>", Short: "Add one.", ValidArgs: []string{"a", "b"}, Args: Arguments(&p.Name), Run: nothing})
	program.AddCommand(run, set, &cobra.Command{Use: "secret-process", Hidden: true, Run: nothing})
	Complete(program)
	at, err = Parse(program, words)
	return p, at, err
}

// What is given, in each of the ways to write it, comes to where it belongs.
func TestParse(t *testing.T) {
	for line, want := range map[string]parsed{
		"run x":                 {Name: "x"},
		"run x y":               {Name: "x", Pattern: "y"},
		"run -w5 x":             {Wait: 5 * time.Second, Name: "x"},
		"run -w=5 x":            {Wait: 5 * time.Second, Name: "x"},
		"run x --wait 500ms":    {Wait: 500 * time.Millisecond, Name: "x"},
		"run --wait=-1s x":      {Wait: -time.Second, Name: "x"},
		"run -w -1 x":           {Wait: -time.Second, Name: "x"},
		"run -lw5 x":            {Wait: 5 * time.Second, Loud: true, Name: "x"},
		"run x -E 3":            {Code: new(3), Name: "x"},
		"run --seed 7 x":        {Seed: 7, Name: "x"},
		"run -E 010 x":          {Code: new(10), Name: "x"},
		"run --nodes a,\"b\" x": {Nodes: []string{"a", `"b"`}, Name: "x"},
		"run --nodes= x":        {Name: "x"},
		"run --loud=no x":       {Name: "x"},
		"run --loud=yes -- -x":  {Loud: true, Name: "-x"},
	} {
		if want.Wait == 0 {
			want.Wait = 10 * time.Second
		}
		got, at, err := parse(strings.Fields(line)...)
		if err != nil || at.Name() != "run" || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s: %+v, %v, want %+v", line, at.Name(), got, err, want)
		}
	}
}

// What is wrong is said, with the command that it is of, and without what may be secret.
func TestParseErrors(t *testing.T) {
	for line, want := range map[string][2]string{
		"":                                    {"prog", "no command: give run, set or help"},
		"rum x":                               {"prog", "unknown command rum: did you mean run?"},
		"secret-proces":                       {"prog", "unknown command secret-proces"},
		"set":                                 {"prog set", "no command: give add"},
		"set ad":                              {"prog set", "unknown command ad: did you mean add?"},
		"set ad --help":                       {"prog set", "unknown command ad: did you mean add?"},
		"help run x":                          {"prog run", "unexpected argument x"},
		"set add":                             {"prog set add", "missing <kind>"},
		"set add c":                           {"prog set add", `<kind> is "c": it must be a or b`},
		"run":                                 {"prog run", "missing <name>"},
		"run a b c":                           {"prog run", "unexpected argument c"},
		"run --wai x":                         {"prog run", "unknown flag --wai: did you mean --wait?"},
		"run --wiat x":                        {"prog run", "unknown flag --wiat: did you mean --wait?"},
		"run --hushe x":                       {"prog run", "unknown flag --hushe"},
		"run --nothing=x x":                   {"prog run", "unknown flag --nothing"},
		"run -lz x":                           {"prog run", "unknown flag -z"},
		"run x --wait":                        {"prog run", "--wait needs a value: --wait D"},
		"run x --nodes":                       {"prog run", "--nodes needs a value: --nodes URL,..."},
		"run --nodes a --nodes b x":           {"prog run", "--nodes: it is given twice, and only one would count: give all in one, separated by commas"},
		"run -w x x":                          {"prog run", `--wait: "x" is not a duration: give seconds, such as 10 or 0.5, or 500ms, 1m30s, 2h`},
		"run -E many x":                       {"prog run", `--code: "many" is not a whole number`},
		"run --seed -1 x":                     {"prog run", `--seed: "-1" is not a whole number of 0 or more`},
		"run --loud=perhaps":                  {"prog run", `--loud: "perhaps" is neither true nor false`},
		"run ---x":                            {"prog run", "---x is not a flag"},
		"--wait 3 run x":                      {"prog", "unknown flag --wait: flags come after the command, as in prog run --wait"},
		"-w 3 run x":                          {"prog", "unknown flag -w: flags come after the command, as in prog run -w"},
		"--hushed run x":                      {"prog", "unknown flag --hushed"},
		"--never 3 run x":                     {"prog", "unknown flag --never"},
		"redis://u:p@h":                       {"prog", "unknown command redis://xxxxx@h"},
		"run a b redis://u:p@h":               {"prog run", "unexpected argument redis://xxxxx@h"},
		"run a b redis://u:p,q@h":             {"prog run", "unexpected argument …"},
		"run --seed=redis://u:p@h":            {"prog run", `--seed: "redis://xxxxx@h" is not a whole number of 0 or more`},
		"run --wait redis://u:p@h x":          {"prog run", `--wait: "redis://xxxxx@h" is not a duration: give seconds, such as 10 or 0.5, or 500ms, 1m30s, 2h`},
		"run --redis://u:p=q@h":               {"prog run", "unknown flag --…"},
		"__complete run --seed redis://u:p@h": {"prog __complete", "unknown command __complete"},
		"__completeNoDesc run --seed redis://u:p@h": {"prog __complete", "unknown command __completeNoDesc"},
		"run ---redis://u:p@h":                      {"prog run", "… is not a flag"},
	} {
		_, at, err := parse(strings.Fields(line)...)
		if err == nil || err.Error() != want[1] || at.CommandPath() != want[0] {
			t.Errorf("%s: %v, of %s", line, err, at.CommandPath())
		}
	}
}

// Help and the version are shown wherever they are asked for.
func TestParseHelp(t *testing.T) {
	for line, want := range map[string]error{
		"--help": pflag.ErrHelp, "-h": pflag.ErrHelp, "run -h": pflag.ErrHelp, "help": pflag.ErrHelp, "-h run x": pflag.ErrHelp, "set -h add a": pflag.ErrHelp, "-h=false help": pflag.ErrHelp, "help run": pflag.ErrHelp, "run --nodes x --help": pflag.ErrHelp, "set add --help": pflag.ErrHelp,
		"--version": ErrVersion, "run --version": ErrVersion,
	} {
		if _, _, err := parse(strings.Fields(line)...); !errors.Is(err, want) {
			t.Errorf("%s: %v", line, err)
		}
	}
	if _, _, err := parse("run", "--", "--help"); err != nil {
		t.Error(err)
	}
}

func TestHelp(t *testing.T) {
	_, run, _ := parse("run", "--help")
	var b bytes.Buffer
	if err := WriteHelp(&b, run); err != nil {
		t.Fatal(err)
	}
	want := `Usage: prog run <name> [<pattern>] [flags]

Run it.

It runs.

Codes:

    0  well
    1  not

Flags:
      --nodes URL,...   Where, URL,....
  -w, --wait D          How long, and on, and on, and on, and on, and on,
                        and on, and on, and on, and on, and on, and on, and on.
  -E, --code N          The code.
      --seed N          The seed.
  -l, --loud            Be loud.
  -h, --help            Show the help of the command.

D is seconds, such as 10 or 0.5, or a text such as 500ms, 1m30s or 2h.

Examples:
  # once
  prog run x
`
	if b.String() != want {
		t.Errorf("got:\n%s", b.String())
	}
	b.Reset()
	if err := WriteHelp(&b, run.Root()); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"Usage: prog <command> [flags]", "      --version ", "  run <name> [<pattern>] [flags]\n    Run it.", "  set add <kind> [flags]\n"} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no %q in:\n%s", line, b.String())
		}
	}
	if strings.Contains(b.String(), "secret") {
		t.Errorf("hidden:\n%s", b.String())
	}
	if names := Placeholders(run); !slices.Equal(names, []string{"name", "pattern"}) {
		t.Error(names)
	}
}
