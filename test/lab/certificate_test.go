package lab_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/internal/testkit"
	"sluice/test/fakeapi"
	"sluice/test/lab"
)

// authority signs certificates of API servers.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.key = a.sign(template, template, nil)
	return a
}

// sign makes a certificate and its key; a nil signer signs itself.
func (a *authority) sign(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if signer == nil {
		signer = key
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// server returns the certificate of a server on the loopback address, which ends at a time, in
// an hour if that is zero.
func (a *authority) server(until time.Time) *tls.Certificate {
	a.t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	if !until.IsZero() {
		template.NotBefore, template.NotAfter = until.Add(-time.Hour), until
	}
	cert, key := a.sign(template, a.cert, a.key)
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// A new certificate of the API server is taken if the same authority signed it. One that cannot be
// verified is reported with what to do, and what is known stays in force until there is a good one.
func TestCertificateOfTheAPIServerIsRotated(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	ours, other := newAuthority(t, "ours"), newAuthority(t, "other")
	dir := t.TempDir()
	ca, kubeconfig := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "kubeconfig")
	api := fakeapi.New()
	defer api.Close()
	var listener net.Listener
	if err := a.node.Do(func() (err error) { listener, err = net.Listen("tcp", "127.0.0.1:0"); return err }); err != nil {
		t.Fatal(err)
	}
	var current atomic.Pointer[tls.Certificate]
	current.Store(ours.server(time.Time{}))
	api.Serve(tls.NewListener(listener, &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil }}))
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}]\n"+
		"users: [{name: u, user: {token: t}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", "https://"+listener.Addr().String(), ca)
	for path, content := range map[string][]byte{kubeconfig: []byte(text), ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ours.cert.Raw})} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	moved := func(pod string) {
		t.Helper()
		to, err := l.Host(pod)
		if err != nil {
			t.Fatal(err)
		}
		protocol, port, name := corev1.ProtocolTCP, int32(8080), ""
		meta := metav1.ObjectMeta{Namespace: "default", Name: "good", Labels: map[string]string{discoveryv1.LabelServiceName: "good"}}
		if err := api.Set([]fakeapi.Object{
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}},
			&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
				Ports: []corev1.ServicePort{{Port: 80, Protocol: protocol}}}},
			&discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
				Ports:     []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{to.Addrs[0].String()}}}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	answers := func(pod string) {
		t.Helper()
		testkit.Eventually(t, func() error {
			if o := l.Connect(t.Context(), lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.1:80")}); o.By != pod {
				return fmt.Errorf("%v, want %s", o, pod)
			}
			return nil
		})
	}
	moved("pod1")
	launch(t, l, lab.ProxyOptions{Flags: []string{flag, "--manifests=", "--cluster-cidr=10.244.0.0/16", "--kubeconfig", kubeconfig}})
	a.ready()
	answers("pod1")
	o := &observer{asker: a, lab: l}
	for _, tt := range []struct {
		name         string
		cert         *tls.Certificate
		pod          string
		says, remedy string // "" if it is taken
	}{
		{"of the same authority", ours.server(time.Time{}), "pod2", "", ""},
		{"of another authority", other.server(time.Time{}), "pod1", "unknown authority", "certificate-authority"},
		{"that has expired", ours.server(time.Now().Add(-time.Minute)), "pod1", "has expired", "renew the server's certificate"},
		{"that is good again", ours.server(time.Time{}), "pod1", "", ""},
	} {
		current.Store(tt.cert)
		api.Disconnect()
		moved(tt.pod)
		if tt.says == "" {
			answers(tt.pod)
			eventually(t, func() bool { return o.report().APIServer.Connected })
			continue
		}
		o.everywhere(tt.says)
		if s := o.report().APIServer; s.Connected || !strings.Contains(s.Remedy, tt.remedy) {
			t.Errorf("%s: the status has %+v", tt.name, s)
		}
		answers("pod2") // as before
	}
}
