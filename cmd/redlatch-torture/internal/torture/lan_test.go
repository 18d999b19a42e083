//go:build linux

package torture

import (
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// A server reaches another that listens a moment later.
func TestServerThatListensLate(t *testing.T) {
	l := newLAN()
	defer l.close()
	l.settle(os.Getpid(), 0)
	later, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := later.Addr().String()
	later.Close()
	address, open, err := l.front(1)
	if err != nil {
		t.Fatal(err)
	}
	open(target)
	conn, err := net.Dial("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // most likely it was refused by then
	if later, err = net.Listen("tcp4", target); err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	server, err := later.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	got := make([]byte, len("hello"))
	if _, err := io.ReadFull(server, got); err != nil || string(got) != "hello" {
		t.Errorf("the server got %q, %v", got, err)
	}
}
