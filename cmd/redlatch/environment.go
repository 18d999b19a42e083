package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch/cmd/internal/commandline"
)

// envPassword has the password for every URL that has none. envLabel is the variable of --label.
const (
	envPassword = "REDLATCH_PASSWORD"
	envLabel    = "REDLATCH_LABEL"
)

// variableKey is the annotation of a flag that names its environment variable.
const variableKey = "variable"

// fromEnvironment gives flags an environment variable each: REDLATCH_MAX_TTL for --max-ttl.
func fromEnvironment(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		f := flags.Lookup(name)
		name = "REDLATCH_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		f.Annotations = map[string][]string{variableKey: {name}}
		f.Usage = strings.TrimSuffix(f.Usage, ".") + " ($" + name + ")."
	}
}

// variable returns the name of the flag's environment variable, or "".
func variable(f *pflag.Flag) string { return strings.Join(f.Annotations[variableKey], "") }

// readEnvironment sets flags that were not given from their variables. An empty variable counts as
// unset, as in other programs. A list is the exception: whoever sets it to nothing by mistake
// should not get the default.
func readEnvironment(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		text, set := os.LookupEnv(variable(f))
		if err != nil || f.Changed || !set || text == "" && f.Value.Type() != commandline.ListType {
			return
		}
		if invalid := f.Value.Set(text); invalid != nil {
			err = fmt.Errorf("%s: %w", variable(f), invalid)
		}
	})
	return err
}

var flagName = regexp.MustCompile(`--[a-z-]+`)

// named adds to a usage error of the command which of the flags that it names have their values from
// variables: the error may be read by somebody who knows only the variable.
func named(err error, cmd *cobra.Command) error {
	end, ok := errors.AsType[*outcome](err)
	if !ok || end.code != exitUsage || end.err == nil {
		return err
	}
	said := inFlags(end.err.Error())
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		from := variable(f)
		if from == "" || f.Changed || os.Getenv(from) == "" || strings.Contains(said+" "+strings.Join(end.hints, " "), from) {
			return
		}
		if slices.Contains(flagName.FindAllString(said, -1), "--"+f.Name) {
			end.hints = append(end.hints, from+" has set --"+f.Name)
		}
	})
	return err
}
