//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/doctor"
	"github.com/redlatch/redlatch/internal/printable"
	"github.com/redlatch/redlatch/internal/redistest"
)

// evil is text that clears a terminal, writes backwards, begins another cell and
// another line, and is no UTF-8.
const evil = "\x1b[2J\u202eabc\tx\nredlatch: all well\x00\xff"

// checkPrintable fails unless all of text but its line breaks is printable.
func checkPrintable(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if !printable.Is(strings.TrimSuffix(line, "\n")) {
			t.Errorf("%q", line)
		}
	}
	if strings.Contains(text, "\nredlatch: all well") {
		t.Errorf("a line was made of what was printed:\n%s", text)
	}
}

// What servers say of themselves cannot reach a terminal's controls.
func TestDoctorEscapes(t *testing.T) {
	node := doctor.Report{
		Node: "a", Server: evil, Version: evil, Role: evil, RunID: evil, Policy: evil, Persistence: evil, User: evil,
		Missing: []string{evil}, OtherSet: []string{evil}, SameAs: "", Status: doctor.StatusUnfit, MaxMemory: 1, Evicting: true,
		Reason: errors.New(evil), Refusal: errors.New(evil),
	}
	for _, role := range []string{evil, "master"} {
		node.Role = role
		command := doctorCmd{connection: connection{Nodes: []string{"redis://a:1"}, Deployment: "default", MaxTTL: time.Minute}}
		reports := []doctor.Report{node, {Node: "b", Err: errors.New(evil)}}
		found := command.diagnose(reports)
		var table, text bytes.Buffer
		if err := errors.Join(writeTable(&table, reports, found), writeJSON(&text, reports, found)); err != nil {
			t.Fatal(err)
		}
		checkPrintable(t, table.String())
		if !json.Valid(text.Bytes()) {
			t.Errorf("%s", text.String())
		}
	}
}

// Nor can errors, hints, and who holds a lock.
func TestMessagesEscape(t *testing.T) {
	holder := redlatch.Holder{ID: evil, Label: evil, Since: time.Now()}
	quorum := &redlatch.QuorumError{Op: "lock", Name: evil, Need: 1, Of: 1, Nodes: []redlatch.NodeAnswer{
		{Node: "a", Verdict: redlatch.VoteHeld, Holder: holder}, {Node: "b", Verdict: redlatch.VoteNotAdmitted},
	}}
	var out bytes.Buffer
	p := &printer{level: verbose, out: &out}
	c := &connection{Nodes: []string{"redis://a:1"}}
	p.fail(c.failure("lock", evil, quorum))
	p.say("%s", new(connection).holderText(quorum))
	p.say("%s", new(connection).holdingText(redlatch.Holder{ID: evil}, -1))
	p.logger().Info("node admitted", "run_id", evil)
	checkPrintable(t, out.String())
}

// show prints what others wrote.
func TestShowEscapes(t *testing.T) {
	server := redistest.New(t)
	t.Setenv("REDLATCH_NO_QUARANTINE", "true")
	for _, value := range []string{evil, strings.Repeat("A", 26) + ".m5yq0000." + evil} {
		if _, err := server.Do("SET", "job", value); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"show"}, {"lock", "--wait", "0"}, {"lock", "--wait", "0", "--verbose"}} {
			text := printed(t, append(args, "--nodes", server.URL(), "job")...)
			checkPrintable(t, text)
			if !strings.Contains(text, `\x1b[2J\u202eabc`) {
				t.Errorf("%q does not say who holds it: %q", args, text)
			}
		}
		if text := printed(t, "show", "--json", "--nodes", server.URL(), "job"); !json.Valid([]byte(text)) {
			t.Errorf("%s", text)
		}
	}
}

// What is no ensemble is told of in words of the command line, not in those of packages zookeeper and etcd.
func TestNoEnsembleInFlags(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answer(t, listener, strings.Repeat("-ERR unknown command\r\n", 10))
	t.Setenv("REDLATCH_NO_QUARANTINE", "")
	for _, scheme := range []string{"zk", "zks", "etcd", "etcds"} {
		text := printed(t, "lock", "-n", "--nodes", scheme+"://"+listener.Addr().String()+"/a", "job")
		if strings.Contains(text, "Config") || strings.Contains(text, "Ensemble.") || strings.Contains(text, "Cluster.") || !strings.Contains(text, "cannot lock") {
			t.Errorf("%s: %s", scheme, text)
		}
	}
}

// answer has each connection to listener, which ends with the test, get the text once it has sent something.
func answer(t *testing.T, listener net.Listener, text string) {
	t.Helper()
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = conn.Read(make([]byte, 1))
				_, _ = io.WriteString(conn, text)
			}()
		}
	}()
}
