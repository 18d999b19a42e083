//go:build unix

package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What setup.sh changes on the machine while it installs is undone when it is interrupted then: the file by which no
// service is started, and the further source of packages.
func TestSetupInterrupted(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../setup.sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, installed := range map[string]string{"packages": "", "valkey": "install ok installed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, programs := t.TempDir(), t.TempDir()
			write := func(path, text string) {
				t.Helper()
				if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"grep", "chmod", "rm", "sleep"} {
				path, err := exec.LookPath(name)
				if err == nil {
					err = os.Symlink(path, filepath.Join(programs, name))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			write(filepath.Join(programs, "dpkg-query"), "#!/bin/sh\necho "+installed+"\n")
			write(filepath.Join(programs, "apt-get"), "#!/bin/sh\ncase \"$*\" in *install*) echo installing; exec sleep 60; esac\n")
			script := string(text)
			for _, path := range []string{"/usr/sbin/policy-rc.d", "/etc/apt/sources.list.d/redlatch-backports.list", "/etc/os-release"} {
				here := filepath.Join(root, filepath.Base(path))
				if !strings.Contains(script, path) {
					t.Fatalf("setup.sh does not name %s", path)
				}
				script = strings.ReplaceAll(script, path, here)
			}
			write(filepath.Join(root, "os-release"), "VERSION_CODENAME=bookworm\n")
			write(filepath.Join(programs, "setup.sh"), script)

			setup := exec.Command("/bin/sh", filepath.Join(programs, "setup.sh"))
			setup.Env = []string{"PATH=" + programs}
			setup.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // all of it is interrupted, as by Ctrl-C
			setup.WaitDelay = time.Minute
			out, err := setup.StdoutPipe()
			if err == nil {
				err = setup.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := out.Read(make([]byte, 1)); err != nil {
				t.Errorf("nothing is installed: %v", err)
			}
			if there, err := os.ReadDir(root); err != nil || len(there) != 2 {
				t.Errorf("while it installs, there are %v, %v", there, err)
			}
			if err := syscall.Kill(-setup.Process.Pid, syscall.SIGINT); err != nil {
				t.Error(err)
			}
			if err := setup.Wait(); err == nil {
				t.Error("it ended as if all was well")
			}
			if left, err := os.ReadDir(root); err != nil || len(left) != 1 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}
