package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// identity is a certificate with its key, both as PEM.
type identity struct {
	certificate, key []byte
}

// authority signs the certificates of one server and its clients.
type authority struct {
	identity
	parsed *x509.Certificate
	signer *ecdsa.PrivateKey
}

func newAuthority() (*authority, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "sluice-cluster"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	a := &authority{parsed: template}
	var err error
	if a.signer, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	if a.identity, err = a.sign(template, a.signer); err != nil {
		return nil, fmt.Errorf("make authority: %w", err)
	}
	block, _ := pem.Decode(a.certificate)
	a.parsed, err = x509.ParseCertificate(block.Bytes)
	return a, err
}

// server issues a certificate for a server with these addresses.
func (a *authority) server(addresses []net.IP) (identity, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		IPAddresses: addresses,
		DNSNames:    []string{"localhost", "kubernetes.default.svc"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// client issues a certificate for a user and the groups it is in.
func (a *authority) client(u User) (identity, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: u.Name, Organization: u.Groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *authority) issue(template *x509.Certificate) (identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return identity{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	return a.sign(template, key)
}

// sign completes a template with the fields that all certificates share.
func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) (identity, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return identity{}, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour) // the clock may be set back a little
	template.NotAfter = time.Now().Add(24 * time.Hour)
	certificate, err := x509.CreateCertificate(rand.Reader, template, a.parsed, key.Public(), a.signer)
	if err != nil {
		return identity{}, fmt.Errorf("sign certificate of %s: %w", template.Subject.CommonName, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return identity{}, err
	}
	return identity{
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}

// write puts the identity into two files.
func (i identity) write(certificate, key string) error {
	if err := os.WriteFile(certificate, i.certificate, 0o600); err != nil {
		return err
	}
	return os.WriteFile(key, i.key, 0o600)
}
