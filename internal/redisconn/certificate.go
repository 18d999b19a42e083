package redisconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/redlatch/redlatch/internal/driver"
)

// errCertificateRefused is a guess: a server that restarts resets connections, too. So it is not Unfit.
var errCertificateRefused = errors.New("the server asked for a client certificate, and ended the connection when it had that of Config.TLS, " +
	"which may be expired or signed by an authority that the server does not know")

// presenting returns config with a note in presented of whether a certificate was given to the server.
func presenting(config *tls.Config, presented *bool) *tls.Config {
	config = config.Clone()
	choose, certificates := config.GetClientCertificate, config.Certificates
	config.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		chosen, err := new(tls.Certificate), error(nil)
		if choose != nil {
			chosen, err = choose(info)
		} else {
			for i := range certificates { // as package tls does
				if info.SupportsCertificate(&certificates[i]) == nil {
					chosen = &certificates[i]
					break
				}
			}
		}
		*presented = chosen != nil && len(chosen.Certificate) > 0
		return chosen, err
	}
	return config
}

// explained adds to the error by which a connection ended before it had answered that the server may not
// have accepted our certificate. With TLS 1.3 our handshake is over before the server looks at that, and
// what we see of its refusal is mostly a reset. Only what sets up the connection was sent by then.
func (w *watched) explained(err error) error {
	if !w.presented || w.answered.Load() {
		return err
	}
	op, ok := errors.AsType[*net.OpError](err)
	if ok && op.Op == "remote error" || err == io.EOF || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return driver.NotSent(fmt.Errorf("%w: %w", errCertificateRefused, err))
	}
	return err
}
