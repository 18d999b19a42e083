package commandline

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version is the version of all modules of the repository. `make version V=…` sets it here and in
// every go.mod that requires another of these modules.
const Version = "v0.1.0"

// VersionLine returns what program prints for --version.
func VersionLine(program string) string {
	built := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		built = info.Main.Version
	}
	return fmt.Sprintf("%s %s %s %s/%s", program, versionOf(built), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// versionOf returns Version. If built, the version that the go command has written into the
// program, is another one, as for a commit between two releases, versionOf adds it in parentheses.
func versionOf(built string) string {
	if built == "" || built == "(devel)" || built == Version {
		return Version
	}
	return fmt.Sprintf("%s (%s)", Version, built)
}
