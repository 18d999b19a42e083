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
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	_, err := fmt.Fprintf(os.Stdout, "redlatch %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
