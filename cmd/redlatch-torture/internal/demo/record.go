package demo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// record is what the workers share: a file with the count of updates and the fencing token of
// the last one, and a second file, the mark of the worker that uses the record. An update
// reads first and writes later, and a write is not atomic. So a worker that comes in between
// makes an update get lost, or reads half a record.
type record struct{ dir string }

func (r record) path() string { return filepath.Join(r.dir, "record") }
func (r record) mark() string { return filepath.Join(r.dir, "in-use") }

// reset sets the count to 0.
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

// enter marks the record as in use by a worker. If there is a mark of another worker, it leaves
// that mark and returns the name of that worker. The file system makes sure that there is only one mark
// at a time (open(2), O_EXCL), without the lock's help.
func (r record) enter(worker int) (other string, err error) {
	f, err := os.OpenFile(r.mark(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		// The other worker may not have written its name yet, or may have just left.
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

// leave removes the mark that enter made.
func (r record) leave() error { return os.Remove(r.mark()) }
