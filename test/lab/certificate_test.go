//go:build linux

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
	"net/http"
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

// secureCluster is an API server with a certificate and one Service, and what it takes to follow it.
type secureCluster struct {
	*testing.T
	lab     *lab.Lab
	asker   *asker
	api     *fakeapi.Server
	ours    *authority
	current atomic.Pointer[tls.Certificate]
	flags   []string // of a proxy
	// authorityFile has the certificate of the authority.
	authorityFile string
}

// newSecureCluster starts one. The user of its clients is given in YAML.
func newSecureCluster(t *testing.T, user string) *secureCluster {
	t.Helper()
	c := &secureCluster{T: t, lab: lab.Start(t), api: fakeapi.New(), ours: newAuthority(t, "ours")}
	t.Cleanup(func() { c.api.Close() })
	a, flag := newAsker(t, c.lab)
	c.asker = a
	dir := t.TempDir()
	ca, kubeconfig := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "kubeconfig")
	c.authorityFile = ca
	c.flags = []string{flag, "--manifests=", "--cluster-cidr=10.244.0.0/16", "--kubeconfig", kubeconfig}
	listener := listenOn(t, a.node, "127.0.0.1:0")
	c.current.Store(c.ours.server(time.Time{}))
	c.api.Serve(tls.NewListener(listener, &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil }}))
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}]\n"+
		"users: [{name: u, user: %s}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", "https://"+listener.Addr().String(), ca, user)
	for path, content := range map[string][]byte{kubeconfig: []byte(text), ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.ours.cert.Raw})} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.moved("pod1")
	return c
}

// moved makes a pod the only endpoint of the Service.
func (c *secureCluster) moved(pod string) {
	c.Helper()
	protocol, port, name := corev1.ProtocolTCP, int32(8080), ""
	meta := metav1.ObjectMeta{Namespace: "default", Name: "good", Labels: map[string]string{discoveryv1.LabelServiceName: "good"}}
	if err := c.api.Set([]fakeapi.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"},
			Ports: []corev1.ServicePort{{Port: 80, Protocol: protocol}}}},
		&discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
			Ports:     []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{hostAddr(c.T, c.lab, pod).String()}}}},
	}); err != nil {
		c.Fatal(err)
	}
}

// answers waits until clients of the Service get to a pod.
func (c *secureCluster) answers(pod string) {
	c.Helper()
	testkit.Eventually(c.T, func() error {
		if o := c.lab.Connect(c.Context(), lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.1:80")}); o.By != pod {
			return fmt.Errorf("%v, want %s", o, pod)
		}
		return nil
	})
}

// A new certificate of the API server is taken if the same authority signed it. One that cannot be
// verified is reported with what to do, and what is known stays in force until there is a good one.
func TestCertificateOfTheAPIServerIsRotated(t *testing.T) {
	t.Parallel()
	c := newSecureCluster(t, "{token: t}")
	other := newAuthority(t, "other")
	launch(t, c.lab, lab.ProxyOptions{Flags: c.flags})
	c.asker.ready()
	c.answers("pod1")
	o := &observer{asker: c.asker, lab: c.lab}
	for _, tt := range []struct {
		name         string
		cert         *tls.Certificate
		pod          string
		says, remedy string // "" if it is taken
	}{
		{"of the same authority", c.ours.server(time.Time{}), "pod2", "", ""},
		{"of another authority", other.server(time.Time{}), "pod1", "unknown authority", "certificate-authority"},
		{"that has expired", c.ours.server(time.Now().Add(-time.Minute)), "pod1", "has expired", "renew the server's certificate"},
		{"that is good again", c.ours.server(time.Time{}), "pod1", "", ""},
	} {
		c.current.Store(tt.cert)
		c.api.Disconnect()
		c.moved(tt.pod)
		if tt.says == "" {
			c.answers(tt.pod)
			eventually(t, func() bool { return o.report().APIServer.Connected })
			said(t, c.asker, c.lab, "serving", "", 0)
			judged(t, c.asker, c.lab, goodAddress)
			continue
		}
		o.everywhere(tt.says)
		said(t, c.asker, c.lab, "serving the past", "the API server has not been reachable for ", 1)
		judged(t, c.asker, c.lab, goodAddress)
		if s := o.report().APIServer; s.Connected || !strings.Contains(s.Remedy, tt.remedy) {
			t.Errorf("%s: the status has %+v", tt.name, s)
		}
		c.answers("pod2") // as before
	}
}

// A token that the API server does not take any more takes no Service away, and the next one in
// the file is used as soon as it is there. No log has one.
func TestTokenIsRotated(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	token := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const one, two = "the-first-secret", "the-second-secret"
	token(one)
	c := newSecureCluster(t, fmt.Sprintf("{tokenFile: %q}", file))
	var valid atomic.Value
	valid.Store(one)
	c.api.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Header.Get("Authorization") != "Bearer "+valid.Load().(string) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
	p := launch(t, c.lab, lab.ProxyOptions{Flags: append(c.flags, "-v=10")})
	c.asker.ready()
	c.answers("pod1")
	valid.Store(two)
	c.api.Disconnect()
	c.moved("pod2")
	o := &observer{asker: c.asker, lab: c.lab}
	o.everywhere("provide credentials")
	c.answers("pod1")
	began := time.Now()
	token(two)
	c.answers("pod2")
	t.Logf("news arrive %v after the new token", time.Since(began).Round(time.Millisecond))
	if strings.Contains(p.Log().String(), "-secret") {
		t.Error("the log has a token")
	}
}
