package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

func version() string {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	return fmt.Sprintf("redlatch-torture %s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
