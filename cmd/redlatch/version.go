package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// versionCmd is `redlatch version`. It is what was asked for, so it goes to
// stdout.
type versionCmd struct{}

func (versionCmd) Run(*printer) error {
	_, err := fmt.Fprintln(os.Stdout, version())
	return err
}

// versionFlag is `redlatch --version`.
type versionFlag bool

// BeforeReset is called by the parser where the flag is given, before anything else is
// missed.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	fmt.Fprintln(app.Stdout, version())
	app.Exit(0)
	return nil
}

func version() string {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	return fmt.Sprintf("redlatch %s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
