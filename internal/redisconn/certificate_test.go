package redisconn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/driver"
	"github.com/redlatch/redlatch/internal/redistest"
)

// strange returns a client certificate that no authority of a server has signed.
func strange(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// A server that does not accept our certificate mostly resets the connection. That is said to be what it
// may be, whether or not the server had accepted one before, as of a certificate that has expired since.
func TestCertificateIsNotAccepted(t *testing.T) {
	t.Parallel()
	eachFlavor(t, func(t *testing.T, binary string) {
		mutual := redistest.New(t, redistest.Options{Binary: binary, TLS: true, TLSClientAuth: true})
		o, _, err := Parse(mutual.URL())
		if err != nil {
			t.Fatal(err)
		}
		certificate := mutual.TLSConfig().Certificates[0]
		for _, before := range []bool{false, true} {
			o.Secure(mutual.TLSConfig())
			o.TLS.Certificates = []tls.Certificate{strange(t)}
			if before {
				good := certificate
				o.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &good, nil }
				conn := open(t, o)
				must(t, conn, "PING")
				good = strange(t)
				conn.leave(func(string) bool { return true })
				for ctx, left := within(t, patience), error(net.ErrClosed); errors.Is(left, net.ErrClosed); {
					_, left = conn.Do(ctx, "PING") // it may still go by the connection that was left
				}
				notAccepted(t, conn)
				continue
			}
			notAccepted(t, open(t, o))
		}
	})
}

func notAccepted(t *testing.T, conn *Conn) {
	t.Helper()
	for range 10 {
		_, err := conn.Do(within(t, patience), "PING")
		if !errors.Is(err, errCertificateRefused) || !errors.Is(err, driver.ErrNotSent) {
			t.Errorf("%v", err)
		}
	}
}
