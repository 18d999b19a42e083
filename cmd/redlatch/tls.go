package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"

	"github.com/redlatch/redlatch/internal/redisconn"
)

// tls is what --ca, --cert and --key say; nil when they are not given.
func (c *connection) tls() (*tls.Config, error) {
	if c.CA == "" && c.Cert == "" && c.Key == "" {
		return nil, nil
	}
	for _, node := range c.Nodes {
		if c.ensemble == nil && !strings.HasPrefix(strings.TrimSpace(node), "rediss://") {
			return nil, usage("write rediss://, or leave --ca, --cert and --key out", "--ca, --cert and --key are for TLS, which %s does not use", redisconn.Redact(node))
		}
	}
	config := &tls.Config{}
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, usage("--ca names a file with certificates, PEM", "cannot read --ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, usage("--ca names a file with certificates, PEM", "no certificate is in --ca %s", c.CA)
		}
	}
	if (c.Cert == "") != (c.Key == "") {
		return nil, usage("give both, or none", "--cert and --key belong together")
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, usage("--cert and --key name files with a certificate and its key, PEM", "cannot use --cert %s with --key %s: %w", c.Cert, c.Key, withoutPackage(err))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// withoutPackage is an error of crypto/tls without the name of the package.
func withoutPackage(err error) error {
	if text, ok := strings.CutPrefix(err.Error(), "tls: "); ok {
		return errors.New(text)
	}
	return err
}
