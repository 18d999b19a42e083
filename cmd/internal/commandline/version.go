package commandline

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version is that of all modules of the repository: `make version V=…` sets it here and in each
// go.mod that requires another of them.
const Version = "v0.1.0"

// VersionLine is what program says to --version.
func VersionLine(program string) string {
	built := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		built = info.Main.Version
	}
	return fmt.Sprintf("%s %s %s %s/%s", program, versionOf(built), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// versionOf is Version, and the version that the go command has written into the program where it
// knows another: that of a commit between two releases.
func versionOf(built string) string {
	if built == "" || built == "(devel)" || built == Version {
		return Version
	}
	return fmt.Sprintf("%s (%s)", Version, built)
}
