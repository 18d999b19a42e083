package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch/cmd/internal/commandline"
)

// versionCmd is `redlatch version`. It prints to stdout.
type versionCmd struct{}

func (versionCmd) line() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Show the version.", Args: commandline.Arguments()}
}

func (versionCmd) Run(*printer) error {
	if _, err := fmt.Fprintln(os.Stdout, commandline.VersionLine("redlatch")); err != nil {
		return &outcome{code: exitSystem, err: err}
	}
	return nil
}
