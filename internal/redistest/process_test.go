package redistest

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// Servers die with the process that started them, however it ends.
func TestServersDieWithUs(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a child of its parent's death")
	}
	if os.Getenv("REDISTEST_ORPHAN") != "" {
		s, err := Start(t.Context(), Options{Dir: os.Getenv("REDISTEST_ORPHAN")})
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("pid " + strconv.Itoa(s.PID()) + " " + s.Addr() + "\n")
		select {} // until killed
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestServersDieWithUs$")
	cmd.Env = append(os.Environ(), "REDISTEST_ORPHAN="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 256)
	n, err := out.Read(buf)
	_ = cmd.Process.Kill()
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	words := strings.Fields(string(buf[:n]))
	if len(words) != 3 || words[0] != "pid" {
		t.Fatalf("the other process said %q", buf[:n])
	}
	err = await(within(t), nil, func(ctx context.Context) (bool, error) {
		c, err := Dial(ctx, words[2])
		if err != nil {
			return true, nil
		}
		c.Close()
		return false, nil
	})
	if err != nil {
		t.Fatalf("server %s outlives the process that started it", words[1])
	}
}
