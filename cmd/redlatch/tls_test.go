//go:build unix

package main

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/redistest"
)

// A server that asks for certificates is reached with --ca, --cert and --key, and not
// without one of them.
func TestCertificates(t *testing.T) {
	t.Setenv("REDLATCH_PASSWORD", "")
	server := redistest.New(t, redistest.Options{TLS: true, TLSClientAuth: true})
	pair := server.TLSConfig().Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, blocks ...[]byte) string {
		var text []byte
		for _, block := range blocks {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: block})...)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca, cert, private := server.CAFile(), write("cert", "CERTIFICATE", pair.Certificate...), write("key", "PRIVATE KEY", key)
	for _, c := range []struct {
		name  string
		flags []string
		code  int
	}{
		{"all three", []string{"--ca", ca, "--cert", cert, "--key", private}, exitFree},
		{"no certificate of ours", []string{"--ca", ca}, exitRefused},
		{"none whom we trust", []string{"--cert", cert, "--key", private}, exitRefused},
	} {
		commands := [][]string{{"show", "job"}}
		if c.code == exitRefused {
			commands = append(commands, []string{"list"}, []string{"admit", "--all"})
		}
		for _, command := range commands {
			args := slices.Concat(command, []string{"--node-timeout", "1", "--nodes", server.URL()}, c.flags)
			if code := exitOf(t, args); code != c.code {
				t.Errorf("%q, %s: exit code %d, want %d", command, c.name, code, c.code)
			}
		}
		// Errors speak of flags.
		for _, command := range [][]string{{"show", "job"}, {"doctor"}, {"deployment", "show"}, {"doctor", "--json"}} {
			text := printed(t, slices.Concat(command, []string{"--node-timeout", "1", "--nodes", server.URL()}, c.flags)...)
			if strings.Contains(text, "Config") || c.name == "no certificate of ours" && !strings.Contains(text, "--cert") {
				t.Errorf("%q, %s:\n%s", command, c.name, text)
			}
			if c.name == "none whom we trust" && !slices.Contains(command, "--json") && !strings.Contains(text, "--ca") {
				t.Errorf("%q, %s: no remedy:\n%s", command, c.name, text)
			}
		}
	}
}

// A server that does not accept the certificate or the TLS version of redlatch: the remedy is told, in
// words of the command line.
func TestTLSRefused(t *testing.T) {
	t.Setenv("REDLATCH_PASSWORD", "")
	server := redistest.New(t, redistest.Options{TLS: true, TLSClientAuth: true})
	cert, key := selfSigned(t)
	old, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: server.TLSConfig().Certificates, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11,
	})
	if err != nil {
		t.Fatal(err)
	}
	answer(t, old, "") // the handshake fails
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--nodes", server.URL(), "--ca", server.CAFile(), "--cert", cert, "--key", key}, "--cert"},
		{[]string{"--nodes", "rediss://" + old.Addr().String(), "--ca", server.CAFile()}, "tls-protocols"},
	} {
		for _, command := range [][]string{{"show", "job"}, {"doctor"}, {"deployment", "show"}, {"lock", "-n", "job"}} {
			text := printed(t, slices.Concat(command, []string{"--node-timeout", "1"}, c.flags)...)
			if strings.Contains(text, "Config") || !strings.Contains(text, c.want) {
				t.Errorf("%q: no word of %s, or one of Config:\n%s", command, c.want, text)
			}
		}
	}
}

// selfSigned returns the files of a certificate that no authority has signed, and of its key.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	signed, err := x509.CreateCertificate(nil, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: signed}, key: {Type: "PRIVATE KEY", Bytes: encoded}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// exitOf runs one command line in this process, in silence, and returns its exit code.
func exitOf(t *testing.T, args []string) int {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = null, null
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()
	return execute(args)
}
