package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	caFile   = "ca.crt"
	certFile = "server.crt"
	keyFile  = "server.key"
)

// authority signs the certificates of every server of this process and of their
// clients. It exists in memory only.
type authority struct {
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	client tls.Certificate
}

var theAuthority = sync.OnceValues(newAuthority)

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate("redistest authority")
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &authority{cert: cert, key: key}
	certPEM, keyPEM, err := a.issue("redistest client")
	if err != nil {
		return nil, err
	}
	a.client, err = tls.X509KeyPair(certPEM, keyPEM)
	return a, err
}

// issue signs a new certificate for the loopback interface.
func (a *authority) issue(name string) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := certificate(name)
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	template.DNSNames = []string{"localhost"}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	// A replica is a client with its server's certificate.
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pemBlock("CERTIFICATE", der), pemBlock("EC PRIVATE KEY", keyDER), nil
}

// certificate is valid from a day ago, so that a server whose clock is stepped
// back does not find its clients' certificates to be of the future.
func certificate(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes([]byte(rand.Text())[:16]),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-24 * time.Hour),
		NotAfter:     now.Add(365 * 24 * time.Hour),
	}
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// writeCertificate puts a new server certificate, its key and the authority's
// certificate into dir.
func writeCertificate(dir string) error {
	a, err := theAuthority()
	if err != nil {
		return err
	}
	certPEM, keyPEM, err := a.issue("redistest server")
	if err != nil {
		return err
	}
	files := map[string][]byte{caFile: pemBlock("CERTIFICATE", a.cert.Raw), certFile: certPEM, keyFile: keyPEM}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// clientTLS trusts the authority alone. It is asked for only once a server has
// its certificate, so the authority exists.
func clientTLS() *tls.Config {
	a, err := theAuthority()
	if err != nil {
		panic("redistest: a server with a certificate but no authority: " + err.Error())
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{
		RootCAs:      roots,
		Certificates: []tls.Certificate{a.client},
		ServerName:   "127.0.0.1",
		MinVersion:   tls.VersionTLS12,
	}
}
