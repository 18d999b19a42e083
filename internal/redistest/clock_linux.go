package redistest

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

//go:embed clockshim/clockshim.c
var clockShimSource []byte

// wallClock is the offset of one server's wall clock, in a file that the
// preloaded shim has mapped too.
type wallClock struct {
	shim string // path of the compiled shim, from the directory in which the server starts
	file string
	mem  []byte
}

// newWallClock makes the offset's file in dir, at zero, and the shim if this
// machine has not compiled it before.
func newWallClock(ctx context.Context, dir string) (*wallClock, error) {
	shim, err := compileShim(ctx, dir)
	if err != nil {
		return nil, err
	}
	// ld.so takes a path with a space or a colon for several, and starts the server without the shim.
	link := filepath.Join(dir, "clockshim.so")
	_ = os.Remove(link) // of an earlier server in this directory
	if err := os.Symlink(shim, link); err != nil {
		return nil, err
	}
	c := &wallClock{shim: "../clockshim.so", file: filepath.Join(dir, clockFile)}
	f, err := os.OpenFile(c.file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(8); err != nil {
		return nil, err
	}
	c.mem, err = syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", c.file, err)
	}
	atomic.StoreInt64(c.offset(), 0)
	return c, nil
}

// offset is shared with the server's process: one aligned word, so that it
// never reads half of a step. A mapping starts on a page.
func (c *wallClock) offset() *int64 { return (*int64)(unsafe.Pointer(&c.mem[0])) }

func (c *wallClock) step(d time.Duration) { atomic.AddInt64(c.offset(), d.Microseconds()) }

func (c *wallClock) env() []string {
	return []string{"LD_PRELOAD=" + c.shim, "REDISTEST_CLOCK_OFFSET=" + c.file}
}

func (c *wallClock) close() error { return syscall.Munmap(c.mem) }

// compileShim returns the path of the compiled shim. It is kept in the user's
// cache directory under a name that stands for its source, or in dir where
// there is no such directory.
func compileShim(ctx context.Context, dir string) (string, error) {
	if cache, err := os.UserCacheDir(); err == nil {
		cache = filepath.Join(cache, "redistest")
		if os.MkdirAll(cache, 0o700) == nil {
			dir = cache
		}
	}
	lib := filepath.Join(dir, fmt.Sprintf("clockshim-%x.so", sha256.Sum256(clockShimSource)))
	if _, err := os.Stat(lib); err == nil {
		return lib, nil
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	compiler, err := exec.LookPath(cc)
	if err != nil {
		return "", fmt.Errorf("Options.ClockShim needs a C compiler "+
			"(remedy: apt-get install gcc libc6-dev, or name one in CC): %w", err)
	}
	work, err := os.MkdirTemp(dir, "clockshim-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	source, made := filepath.Join(work, "clockshim.c"), filepath.Join(work, "clockshim.so")
	if err := os.WriteFile(source, clockShimSource, 0o600); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, compiler, "-O2", "-shared", "-fPIC", "-o", made, source).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compiling the clock shim with %s: %w\n%s", compiler, err, out)
	}
	// Others may do the same at this moment: whoever is last puts the same
	// file there, and nobody sees half of one.
	if err := os.Rename(made, lib); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return lib, nil
}
