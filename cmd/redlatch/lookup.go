//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// lookup finds the file of COMMAND, as execvp(3) does. It is called before the lock is
// taken: nobody should wait for the lock of a command that does not exist.
func lookup(command string) (string, error) {
	candidates := []string{command}
	if !strings.ContainsRune(command, filepath.Separator) {
		candidates = inPath(command)
	}
	for _, candidate := range candidates {
		// The candidate has a separator in it, so LookPath does not search PATH.
		if path, err := exec.LookPath(candidate); err == nil {
			return path, nil
		}
	}
	if end := present(candidates); end != nil {
		return "", end
	}
	return "", &outcome{code: exitNotFound, err: fmt.Errorf("command not found: %s", command)}
}

// defaultPath is searched if PATH is not set, as the C libraries do.
const defaultPath = "/bin:/usr/bin"

// inPath returns the files that a command may be, in the order of PATH. An empty
// directory in PATH is the current one, as in a shell.
func inPath(command string) []string {
	path, set := os.LookupEnv("PATH")
	if !set {
		path = defaultPath
	}
	var candidates []string
	for dir := range strings.SplitSeq(path, string(filepath.ListSeparator)) {
		if dir == "" {
			dir = "."
		}
		candidates = append(candidates, dir+string(filepath.Separator)+command)
	}
	return candidates
}

// present returns the outcome for a file that exists but cannot be executed, or nil.
func present(candidates []string) *outcome {
	for _, candidate := range candidates {
		info, err := os.Stat(candidate)
		switch {
		case errors.Is(err, os.ErrPermission):
			return &outcome{code: exitNotExec, err: fmt.Errorf("cannot execute %s: %w", candidate, err)}
		case err != nil:
		case !info.IsDir():
			return &outcome{
				code:  exitNotExec,
				err:   fmt.Errorf("cannot execute %s: no execute permission", candidate),
				hints: []string{shellWords("chmod", "+x", candidate) + ", or name its interpreter: " + shellWords("--", "sh", candidate)},
			}
		case len(candidates) == 1: // in PATH, a directory of that name does not match
			return &outcome{code: exitNotExec, err: fmt.Errorf("cannot execute %s: it is a directory", candidate)}
		}
	}
	return nil
}
