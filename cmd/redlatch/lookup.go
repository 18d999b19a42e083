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

// lookup finds the file that COMMAND is. It comes before the lock: nobody
// should wait for the lock of a command that does not exist.
func lookup(command string) (string, error) {
	path, err := exec.LookPath(command)
	// ErrDot: found in the current folder because PATH says so. Whoever set
	// PATH so means it here too.
	if err == nil || errors.Is(err, exec.ErrDot) {
		return path, nil
	}
	if end := present(command); end != nil {
		return "", end
	}
	return "", &outcome{code: exitNotFound, err: fmt.Errorf("command not found: %s", command)}
}

// present finds the file that was passed over because it cannot be executed.
func present(command string) *outcome {
	candidates := []string{command}
	if !strings.ContainsRune(command, filepath.Separator) {
		candidates = nil
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			candidates = append(candidates, filepath.Join(dir, command))
		}
	}
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
		case len(candidates) == 1: // in PATH, a folder of that name is no match
			return &outcome{code: exitNotExec, err: fmt.Errorf("cannot execute %s: it is a folder", candidate)}
		}
	}
	return nil
}
