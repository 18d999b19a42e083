package demo

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
)

func isInvalid(err error, setting string) bool {
	return errors.Is(err, redlatch.ErrInvalid) && strings.Contains(err.Error(), setting)
}

func TestRecord(t *testing.T) {
	r := record{dir: t.TempDir()}
	if err := r.reset(); err != nil {
		t.Fatal(err)
	}
	if err := r.write(7, 1795258546316830); err != nil {
		t.Fatal(err)
	}
	count, token, err := r.read()
	if count != 7 || token != 1795258546316830 || err != nil {
		t.Errorf("read %d, %d, %v", count, token, err)
	}
	for _, text := range []string{"", "7 upd", "7 updates, last token"} {
		if err := os.WriteFile(r.path(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.read(); err == nil {
			t.Errorf("%q is taken for a record", text)
		}
	}
}

// A worker finds the mark of another one, but only until that one leaves.
func TestMark(t *testing.T) {
	r := record{dir: t.TempDir()}
	if other, err := r.enter(1); other != "" || err != nil {
		t.Fatalf("the first finds %q, %v", other, err)
	}
	if other, err := r.enter(2); other != "worker 1" || err != nil {
		t.Errorf("the second finds %q, %v", other, err)
	}
	if err := r.leave(); err != nil {
		t.Error(err)
	}
	if other, err := r.enter(2); other != "" || err != nil {
		t.Errorf("after the first left, the second finds %q, %v", other, err)
	}
}
