package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"

	"github.com/redlatch/redlatch/internal/redisconn"
)

// tls returns the settings that --ca, --cert and --key give, or nil without these flags.
func (c *connection) tls() (*tls.Config, error) {
	if c.CA == "" && c.Cert == "" && c.Key == "" {
		return nil, nil
	}
	for _, node := range c.Nodes {
		if o, _, err := redisconn.Parse(strings.TrimSpace(node)); c.ensemble == nil && err == nil && o.TLS == nil {
			return nil, usage("write rediss://, or leave --ca, --cert and --key out", "--ca, --cert and --key are for TLS, which %s does not use", redisconn.Redact(node))
		}
	}
	config := &tls.Config{}
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, usage("--ca names a PEM file with certificates", "cannot read --ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, usage("--ca names a PEM file with certificates", "--ca %s has no certificate", c.CA)
		}
	}
	if (c.Cert == "") != (c.Key == "") {
		return nil, usage("give both or neither", "--cert and --key belong together")
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, usage("--cert and --key name PEM files with a certificate and its key", "cannot use --cert %s with --key %s: %w", c.Cert, c.Key, withoutPackage(err))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// withoutPackage removes the name of the package from an error of crypto/tls.
func withoutPackage(err error) error {
	if text, ok := strings.CutPrefix(err.Error(), "tls: "); ok {
		return errors.New(text)
	}
	return err
}
