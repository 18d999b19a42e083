package commandline

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Error says what is wrong with a command line, and for which command.
type Error struct {
	Command *Command
	Err     error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// What a command line may ask for in place of what its command does.
var (
	ErrHelp    = errors.New("help is asked for")
	ErrVersion = errors.New("the version is asked for")
)

// Parse sets the fields of the command that args name, and returns it. Flags may stand before
// and between arguments, up to a "--". The error is an *Error; it wraps ErrHelp or ErrVersion
// where --help or --version is among args, whatever else is wrong with them.
func (c *Command) Parse(args []string) (*Command, error) {
	p := &parsing{command: c, rest: args}
	err := p.words()
	if err == nil {
		err = p.finish()
	}
	if err != nil {
		return p.command, &Error{p.command, err}
	}
	return p.command, nil
}

// parsing is how far a command line is read.
type parsing struct {
	command *Command
	rest    []string
	// taken is how many arguments there were.
	taken int
	// plain: there are no flags any more.
	plain bool
}

func (p *parsing) words() error {
	for len(p.rest) > 0 {
		word := p.rest[0]
		if p.passes() && (word == "--" || p.plain || !isFlag(word)) {
			p.command.Args[p.taken].value.Set(reflect.ValueOf(p.rest))
			p.taken++
			return nil
		}
		p.rest = p.rest[1:]
		var err error
		switch {
		case !p.plain && word == "--":
			p.plain = true
		case !p.plain && isFlag(word):
			err = p.flag(word)
		case len(p.command.Commands) > 0:
			err = p.descend(word)
		default:
			err = p.argument(word)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func isFlag(word string) bool { return len(word) > 1 && word[0] == '-' }

// passes reports whether the next argument takes all that follows as it is.
func (p *parsing) passes() bool {
	return p.taken < len(p.command.Args) && p.command.Args[p.taken].Passes
}

// descend goes to the command that is named so.
func (p *parsing) descend(word string) error {
	var names []string
	for _, below := range p.command.Commands {
		if below.Name == word {
			p.command = below
			return nil
		}
		if !below.Hidden {
			names = append(names, below.Name)
		}
	}
	return fmt.Errorf("unknown command %s%s", word, meant(word, names))
}

func (p *parsing) argument(word string) error {
	if p.taken == len(p.command.Args) {
		return fmt.Errorf("unexpected argument %s", word)
	}
	a := p.command.Args[p.taken]
	if a.All {
		if err := add(a.value, word); err != nil {
			return fmt.Errorf("<%s>: %w", a.Name, err)
		}
		return nil
	}
	p.taken++
	if len(a.Enum) > 0 && !slices.Contains(a.Enum, word) {
		return fmt.Errorf("<%s> is %q: it must be %s", a.Name, word, either(a.Enum))
	}
	if err := set(a.value, word); err != nil {
		return fmt.Errorf("<%s>: %w", a.Name, err)
	}
	return nil
}

// flag reads a word with a flag, or with several short ones.
func (p *parsing) flag(word string) error {
	if name, long := strings.CutPrefix(word, "--"); long {
		name, value, has := strings.Cut(name, "=")
		f := p.find(func(f *Flag) bool { return f.Name == name || slices.Contains(f.aliases, name) })
		if f == nil {
			var names []string
			for _, f := range p.command.AllFlags() {
				names = append(names, "--"+f.Name)
			}
			return fmt.Errorf("unknown flag --%s%s", name, meant("--"+name, names))
		}
		return p.take(f, "--"+name, value, has)
	}
	for rest := word[1:]; rest != ""; {
		f := p.find(func(f *Flag) bool { return f.Short == rest[0] })
		name := "-" + rest[:1]
		if f == nil {
			return fmt.Errorf("unknown flag %s", name)
		}
		rest = rest[1:]
		if f.TakesValue() && rest != "" {
			return p.take(f, name, strings.TrimPrefix(rest, "="), true)
		}
		if err := p.take(f, name, "", false); err != nil {
			return err
		}
	}
	return nil
}

func (p *parsing) find(is func(*Flag) bool) *Flag {
	for c := p.command; c != nil; c = c.Parent {
		if i := slices.IndexFunc(c.Flags, is); i >= 0 {
			return c.Flags[i]
		}
	}
	return nil
}

// take sets a flag to its value, which is the next word where it is not in this one.
func (p *parsing) take(f *Flag, name, value string, has bool) error {
	switch {
	case has:
	case !f.TakesValue():
		value = "true"
	case len(p.rest) == 0:
		return fmt.Errorf("%s has no value: %s=%s", name, name, f.Placeholder())
	default:
		value, p.rest = p.rest[0], p.rest[1:]
	}
	if err := set(f.value, value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	f.given = true
	switch f {
	case p.command.program().Flags[0]:
		return ErrHelp
	case p.command.program().Flags[1]:
		return ErrVersion
	}
	return nil
}

// finish sets what was not given, and says what is missing.
func (p *parsing) finish() error {
	c := p.command
	if len(c.Commands) > 0 {
		var names []string
		for _, below := range c.Commands {
			if !below.Hidden {
				names = append(names, below.Name)
			}
		}
		return fmt.Errorf("no command: give %s", either(names))
	}
	for i, a := range c.Args {
		switch {
		case i < p.taken || a.All && a.value.Len() > 0:
		case !a.Optional:
			return fmt.Errorf("no <%s>", a.Name)
		case a.Default != "":
			if err := set(a.value, a.Default); err != nil {
				return fmt.Errorf("<%s>: %w", a.Name, err)
			}
		}
	}
	groups := make(map[string]*Flag)
	for _, f := range c.own() {
		if other := groups[f.Group]; f.Group != "" && f.given && other != nil {
			return fmt.Errorf("--%s and --%s are given: give one of them", other.Name, f.Name)
		} else if f.given {
			groups[f.Group] = f
			continue
		}
		name, value := f.Env, ""
		text, ok := f.fromEnvironment()
		if value = text; !ok {
			if name, value = "--"+f.Name, f.Default; value == "" {
				continue
			}
		}
		if err := set(f.value, value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// either is a list of words of which one is to be given.
func either(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// meant asks whether one of the names was meant.
func meant(word string, names []string) string {
	var near []string
	typed := strings.TrimLeft(word, "-")
	for _, name := range names {
		letters := strings.TrimLeft(name, "-")
		if typed != "" && (strings.HasPrefix(letters, typed) || distance(typed, letters) <= min(2, len(typed)/2)) {
			near = append(near, name)
		}
	}
	if len(near) == 0 {
		return ""
	}
	return ": did you mean " + either(near) + "?"
}

// distance is how many letters were left out, added or replaced (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
