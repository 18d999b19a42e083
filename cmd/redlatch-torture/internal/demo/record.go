package demo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// record is what the workers share: a file with a count and the fencing token of
// the last update, and beside it the mark of the worker that is at it. Reading
// and writing are two steps, and a write is not atomic: who comes in between
// takes away an update or reads half a record.
type record struct{ dir string }

func (r record) path() string { return filepath.Join(r.dir, "record") }
func (r record) mark() string { return filepath.Join(r.dir, "in-use") }

// reset makes the record count from 0.
func (r record) reset() error { return r.write(0, 0) }

func (r record) read() (count, token uint64, err error) {
	text, err := os.ReadFile(r.path())
	if err != nil {
		return 0, 0, err
	}
	if n, err := fmt.Sscanf(string(text), "%d updates, last token %d\n", &count, &token); err != nil {
		return 0, 0, fmt.Errorf("it reads %q (%d of 2 numbers)", text, n)
	}
	return count, token, nil
}

func (r record) write(count, token uint64) error {
	return os.WriteFile(r.path(), fmt.Appendf(nil, "%d updates, last token %d\n", count, token), 0o600)
}

// enter marks the record as in use by a worker. That no two marks can be there
// at once is the file system's doing (open(2), O_EXCL), not the lock's. When
// somebody else's mark is there, other says whose, and nothing was marked.
func (r record) enter(worker int) (other string, err error) {
	f, err := os.OpenFile(r.mark(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		// The other may not have written its name yet, or may just have left.
		name, err := os.ReadFile(r.mark())
		if err != nil || len(name) == 0 {
			return "another worker", nil
		}
		return string(name), nil
	}
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintf(f, "worker %d", worker)
	return "", errors.Join(err, f.Close())
}

// leave takes away the mark that enter made.
func (r record) leave() error { return os.Remove(r.mark()) }
