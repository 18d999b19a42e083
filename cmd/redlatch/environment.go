package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch/cmd/internal/commandline"
)

// variableKey is the annotation of a flag with the variable that stands for it.
const variableKey = "variable"

// fromEnvironment has variables stand for flags: REDLATCH_MAX_TTL for --max-ttl.
func fromEnvironment(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		f := flags.Lookup(name)
		name = "REDLATCH_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		f.Annotations = map[string][]string{variableKey: {name}}
		f.Usage = strings.TrimSuffix(f.Usage, ".") + " ($" + name + ")."
	}
}

// variable is what stands for the flag, "" for none.
func variable(f *pflag.Flag) string { return strings.Join(f.Annotations[variableKey], "") }

// readEnvironment sets the flags that were not given. An empty variable counts as unset, as with
// other programs, but for a list, which may be empty: a program that was given an empty list by
// mistake is not to take the default for it.
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
