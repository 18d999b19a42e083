package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
)

// versionCmd is `redlatch version`. It is what was asked for, so it goes to
// stdout.
type versionCmd struct{}

func (versionCmd) Run(*printer) error {
	_, err := fmt.Fprintln(os.Stdout, version())
	return err
}

func version() string {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	return fmt.Sprintf("redlatch %s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
