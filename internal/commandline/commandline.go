// Package commandline makes a command line of a struct: a field a command, and in the structs of
// commands a field a flag or an argument. It calls no method by its name and asks for none by
// reflection: that would have the linker keep every exported method of every type of a
// program, which are more than ten thousand with rueidis.
//
// A field's tags are
//
//	cmd:""            it is a struct, and a command
//	arg:""            it is an argument; optional:"" need not be there; a slice takes all
//	passthrough:""    of a []string argument: flags behind its first word are words of it, and so is "--"
//	name:"" short:""  what it is called, where that is not the field's name in lower case with dashes
//	aliases:"a,b"     what else a flag is called, which is in no help
//	help:""           a sentence or some; placeholder:"" is what its value is called there
//	env:""            a variable that stands for the flag
//	default:""        its value where neither is given
//	enum:"a,b"        the values that there are
//	xor:"group"       of the flags of a group one can be given
//	hidden:""         it is in no help
//
// Fields without tags are not looked at, but for embedded structs, whose fields count as the
// struct's own. A flag is a string, bool, int, uint64, time.Duration, a slice of these, separated by
// commas, or a pointer to one of them, nil where it is not given.
package commandline

import (
	"cmp"
	"fmt"
	"os"
	"reflect"
	"strings"
	"unicode"
)

// Command is a command, or the program itself, which has no Parent.
type Command struct {
	Name, Help string
	Hidden     bool
	Parent     *Command
	// Commands are those below it. A command has these, or arguments.
	Commands []*Command
	// Flags are its own. Those of the program, --help and --version, are flags of all.
	Flags []*Flag
	Args  []*Arg
	// Target is a pointer to the command's struct. Its method Help, where there is one, is a long
	// text, and its method Usage the first line of its help.
	Target any
	// Examples are shown at the end of its help.
	Examples []Example
}

// Example is a command line, and what it is for.
type Example struct{ What, Line string }

// Flag is a flag. Its name comes after two dashes, Short after one; Short is 0 for none.
type Flag struct {
	Name                      string
	Short                     byte
	Help, Env, Default, Group string
	Hidden                    bool
	aliases                   []string
	placeholder               string
	value                     reflect.Value
	given                     bool
}

// Arg is an argument.
type Arg struct {
	Name, Help            string
	Optional, All, Passes bool
	Default               string
	Enum                  []string
	value                 reflect.Value
}

// New returns the program of the struct that root points to, with examples by the commands'
// paths. It panics where a field is none that a command line can have.
func New(name, help string, root any, examples map[string][]Example) *Command {
	program := &Command{Name: name, Help: help, Target: root}
	var asked [2]bool
	program.Flags = []*Flag{
		{Name: "help", Short: 'h', Help: "Show the help of the command.", value: reflect.ValueOf(&asked[0]).Elem()},
		{Name: "version", Help: "Show the version.", value: reflect.ValueOf(&asked[1]).Elem()},
	}
	program.read(reflect.ValueOf(root).Elem())
	for _, c := range program.All() {
		c.Examples = examples[c.Path()]
	}
	return program
}

// read takes in the fields of a command's struct.
func (c *Command) read(v reflect.Value) {
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		if field.Anonymous && field.Type.Kind() == reflect.Struct {
			c.read(value)
			continue
		}
		if field.Tag == "" {
			continue
		}
		has := func(key string) bool { _, ok := field.Tag.Lookup(key); return ok }
		name := cmp.Or(field.Tag.Get("name"), dashed(field.Name))
		switch help := field.Tag.Get("help"); {
		case has("cmd"):
			below := &Command{Name: name, Help: help, Hidden: has("hidden"), Parent: c, Target: value.Addr().Interface()}
			below.read(value)
			c.Commands = append(c.Commands, below)
		case has("arg"):
			a := &Arg{Name: name, Help: help, Optional: has("optional"), Passes: has("passthrough"), Default: field.Tag.Get("default"), value: settable(field, value)}
			a.All = field.Type.Kind() == reflect.Slice
			if enum := field.Tag.Get("enum"); enum != "" {
				a.Enum = strings.Split(enum, ",")
			}
			c.Args = append(c.Args, a)
		default:
			f := &Flag{Name: name, Help: help, Env: field.Tag.Get("env"), Default: field.Tag.Get("default"), Group: field.Tag.Get("xor"),
				Hidden: has("hidden"), placeholder: field.Tag.Get("placeholder"), value: settable(field, value)}
			if aliases := field.Tag.Get("aliases"); aliases != "" {
				f.aliases = strings.Split(aliases, ",")
			}
			if short := field.Tag.Get("short"); short != "" {
				f.Short = short[0]
			}
			c.Flags = append(c.Flags, f)
		}
	}
}

// settable is the field's value, of a type that a text can be set to.
func settable(field reflect.StructField, v reflect.Value) reflect.Value {
	if !v.CanSet() || !isValue(field.Type) {
		panic(fmt.Sprintf("commandline: field %s, a %v, can be no flag and no argument", field.Name, field.Type))
	}
	return v
}

// dashed is a field's name as a flag's: MaxTTL has a name tag, MinHold is min-hold.
func dashed(field string) string {
	var b strings.Builder
	for i, r := range field {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// All are the command and all below it, in their order.
func (c *Command) All() []*Command {
	all := []*Command{c}
	for _, below := range c.Commands {
		all = append(all, below.All()...)
	}
	return all
}

// Path is what is typed for a command after the program's name, "" for the program.
func (c *Command) Path() string {
	if c.Parent == nil {
		return ""
	}
	return strings.TrimSpace(c.Parent.Path() + " " + c.Name)
}

// FullPath is Path behind the program's name.
func (c *Command) FullPath() string { return strings.TrimSpace(c.program().Name + " " + c.Path()) }

func (c *Command) program() *Command {
	for c.Parent != nil {
		c = c.Parent
	}
	return c
}

// AllFlags are the program's and the command's own that are in its help.
func (c *Command) AllFlags() []*Flag {
	flags := c.program().Flags[:2:2]
	if c.Parent != nil {
		flags = flags[:1:1] // the version is the program's
	}
	for _, f := range c.own() {
		if !f.Hidden {
			flags = append(flags, f)
		}
	}
	return flags
}

// own are the command's flags without the program's.
func (c *Command) own() []*Flag {
	if c.Parent == nil {
		return c.Flags[2:]
	}
	return c.Flags
}

// Usage is the first line of the command's help.
func (c *Command) Usage() string {
	if own, ok := c.Target.(interface{ Usage() string }); ok {
		return own.Usage()
	}
	return strings.TrimSpace(c.program().Name + " " + c.synopsis())
}

// synopsis is its path with its arguments.
func (c *Command) synopsis() string {
	words := []string{}
	if c.Parent != nil {
		words = append(words, c.Path())
	}
	if len(c.Commands) > 0 {
		words = append(words, "<command>")
	}
	for _, a := range c.Args {
		text := "<" + a.Name + ">"
		if a.All {
			text += " ..."
		}
		if a.Optional {
			text = "[" + text + "]"
		}
		words = append(words, text)
	}
	return strings.Join(append(words, "[flags]"), " ")
}

// Detail is the long text of its help.
func (c *Command) Detail() string {
	if own, ok := c.Target.(interface{ Help() string }); ok {
		return own.Help()
	}
	return ""
}

// TakesValue reports whether a value follows the flag.
func (f *Flag) TakesValue() bool { return f.value.Kind() != reflect.Bool }

// TakesFile reports whether it is a file's name.
func (f *Flag) TakesFile() bool { return f.placeholder == "FILE" || f.placeholder == "DIR" }

// Placeholder is what stands for its value in a help.
func (f *Flag) Placeholder() string {
	text := cmp.Or(f.placeholder, strings.ToUpper(f.Name))
	if f.value.Kind() == reflect.Slice {
		text += ",..."
	}
	return text
}

// FullHelp is its help with the variable that stands for it.
func (f *Flag) FullHelp() string {
	if f.Env == "" {
		return f.Help
	}
	return strings.TrimSuffix(f.Help, ".") + " ($" + f.Env + ")."
}

// Spellings are how it is typed.
func (f *Flag) Spellings() []string {
	if f.Short != 0 {
		return []string{"-" + string(f.Short), "--" + f.Name}
	}
	return []string{"--" + f.Name}
}

// fromEnvironment is the value that a variable has for the flag. An empty one counts as unset,
// as with other programs, but for a list, which may be empty: a program that was given an
// empty list by mistake is not to take the default for it.
func (f *Flag) fromEnvironment() (text string, ok bool) {
	if f.Env == "" {
		return "", false
	}
	text, ok = os.LookupEnv(f.Env)
	return text, ok && (text != "" || f.value.Kind() == reflect.Slice)
}
