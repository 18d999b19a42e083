//go:build unix

package demo

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// place is the only line that an embedded server reads. The server ends at the end of its stdin.
type place struct {
	Address string `json:"address"`
}

// serving is the only line that an embedded server writes, once it listens or has failed to.
type serving struct {
	Failed string `json:"failed,omitempty"`
}

// Serve is the process of one embedded server. It listens where orders say,
// writes one line to answers, and serves until the end of orders. It keeps nothing on disk.
func Serve(orders io.Reader, answers io.Writer) error {
	lines := bufio.NewReader(orders)
	var p place
	if err := readLine(lines, &p); err != nil {
		return fmt.Errorf("reading where to listen: %w", err)
	}
	listener, err := serve(p.Address)
	if err != nil {
		return json.NewEncoder(answers).Encode(serving{Failed: err.Error()})
	}
	defer listener.Close()
	if err := json.NewEncoder(answers).Encode(serving{}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, lines)
	return err
}

// serve starts a server in this process. It accepts the connections itself, because miniredis
// would accept them before it has registered its commands.
func serve(address string) (net.Listener, error) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true) // otherwise keys do not expire as time passes
	conn, err := m.Dial()
	if err != nil {
		return nil, err
	}
	conn.Close() // Dial was called only because it starts the server
	m.Server().SetPreHook(newFacts(time.Now()).answer)
	listener, err := net.Listen("tcp4", address)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			m.Server().ServeConn(conn)
		}
	}()
	return listener, nil
}

// facts are what the quarantine asks of a server and miniredis does not answer. The answers are
// true: this process is the server's only run, and its scripts and keys end with it.
type facts struct {
	run   string
	start time.Time
}

func newFacts(start time.Time) facts {
	var run [20]byte
	_, _ = rand.Read(run[:]) // never returns an error (documentation of crypto/rand)
	return facts{run: hex.EncodeToString(run[:]), start: start}
}

// answer is called before each command, even one inside a script. It reports whether it has
// answered the command itself.
func (f facts) answer(c *server.Peer, command string, args ...string) bool {
	if command == "SUBSCRIBE" {
		// On a real server (RESP3) a connection that subscribes can still send other commands, but not in
		// miniredis. So SUBSCRIBE is refused, and clients poll instead.
		c.WriteError("ERR not supported")
		return true
	}
	if command != "INFO" {
		return false
	}
	// The replication ids say that the server never had the data of another master.
	sections := map[string]string{
		"server": fmt.Sprintf("redis_version:7.0.0\r\nredis_mode:standalone\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n",
			f.run, int64(time.Since(f.start)/time.Second)),
		"replication": "role:master\r\nconnected_slaves:0\r\nmaster_replid:" + f.run + "\r\nsecond_repl_offset:-1\r\n",
		"persistence": "aof_enabled:0\r\n",
		"memory":      "maxmemory:0\r\nmaxmemory_policy:noeviction\r\n",
	}
	var text strings.Builder
	for name, section := range sections {
		if len(args) == 0 || strings.EqualFold(args[0], name) {
			text.WriteString(section)
		}
	}
	c.WriteBulk(text.String())
	return true
}
