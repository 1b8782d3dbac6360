package apiserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sluice/internal/testkit"
)

// timeout is how long a start may take, and requestTime a request meanwhile.
const (
	timeout     = time.Minute
	requestTime = 5 * time.Second
)

// Options configures a server.
type Options struct {
	// Binaries are the binaries to run; those that Build returns if empty.
	Binaries Binaries
	// ServiceCIDRs are the ranges of ClusterIPs, at most one per family.
	ServiceCIDRs []netip.Prefix
	// Advertise is the address of the only endpoint of the Service
	// default/kubernetes. The API server always listens on loopback.
	Advertise netip.Addr
	// Flags are added to those of the API server.
	Flags []string
}

// Server is a running etcd with a kube-apiserver.
type Server struct {
	asked     Options // as they were given
	options   Options
	dir       string
	authority *authority
	port      uint16 // of the API server
	store     store

	etcd, api *process
	admin     *kubernetes.Clientset

	first     map[string][]byte // what the store held after the start
	disturbed bool              // it has been stopped since, or has lost its history
}

// Start starts a server and waits until it is ready. The caller must Close it. It
// is hardened like some clusters: users have only the permissions of their own
// roles.
func Start(ctx context.Context, o Options) (*Server, error) {
	s := &Server{asked: o}
	if o.Binaries == (Binaries{}) {
		built, err := Build(ctx, func(string) {})
		if err != nil {
			return nil, err
		}
		o.Binaries = built
	}
	s.options = o
	for _, step := range []func(context.Context) error{s.prepare, s.startStore, s.Restart, s.denyDiscovery, s.remember} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("start server: %w", err), s.Close())
		}
	}
	return s, nil
}

// Close stops both processes and removes their data.
func (s *Server) Close() error {
	var errs []error
	for _, p := range []*process{s.api, s.etcd} {
		if p != nil {
			errs = append(errs, p.kill())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// Kill kills the API server, as kill -9 or a power failure do.
func (s *Server) Kill() error {
	s.disturbed = true
	return s.api.kill()
}

// Stop asks the API server to exit, and waits for that.
func (s *Server) Stop() error {
	s.disturbed = true
	return s.api.stop()
}

// Restart starts the stopped API server on its old port and waits until it is
// ready.
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := testkit.WithTimeout(ctx, timeout)
	defer cancel()
	api, err := start("kube-apiserver", s.options.Binaries.APIServer, s.path("kube-apiserver.log"), s.flags())
	if err != nil {
		return err
	}
	s.api = api
	return api.await(ctx, s.ready)
}

// PID returns the process ID of the API server, which changes when it is restarted.
func (s *Server) PID() int { return s.api.cmd.Process.Pid }

// Addr returns the address of the API server.
func (s *Server) Addr() netip.AddrPort { return netip.AddrPortFrom(loopback, s.port) }

// Admin returns a client with all permissions.
func (s *Server) Admin() kubernetes.Interface { return s.admin }

// ready returns why the API server cannot be used yet. It makes its own Service
// only after it has declared itself ready, and that service's endpoint last.
func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := testkit.WithTimeout(ctx, requestTime)
	defer cancel()
	if _, err := s.admin.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return err
	}
	slice, err := s.admin.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err == nil && len(slice.Endpoints) == 0 {
		err = errors.New("the Service default/kubernetes has no endpoint")
	}
	return err
}

// prepare creates everything that outlives a restart.
func (s *Server) prepare(context.Context) error {
	var err error
	// By this name, lab.Sweep finds what a killed test leaves.
	if s.dir, err = os.MkdirTemp("", fmt.Sprintf("sluice-lab-%d-*-apiserver", os.Getpid())); err != nil {
		return err
	}
	if s.authority, err = newAuthority(); err != nil {
		return err
	}
	if s.port, err = freePort(); err != nil {
		return err
	}
	if err := s.writeCertificates(); err != nil {
		return err
	}
	config, err := s.Config(Admin)
	if err != nil {
		return err
	}
	s.admin, err = kubernetes.NewForConfig(config)
	return err
}

func (s *Server) writeCertificates() error {
	addresses := []net.IP{loopback.AsSlice(), s.options.Advertise.AsSlice()}
	for _, cidr := range s.options.ServiceCIDRs {
		// The Service default/kubernetes has the first address.
		addresses = append(addresses, cidr.Masked().Addr().Next().AsSlice())
	}
	serving, err := s.authority.server(addresses)
	if err != nil {
		return err
	}
	tokens, err := s.authority.client(User{Name: "service-accounts"})
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(s.path("ca.crt"), s.authority.certificate, 0o600),
		serving.write(s.path("serving.crt"), s.path("serving.key")),
		tokens.write(s.path("tokens.crt"), s.path("tokens.key")),
	)
}

// flags are those of the API server.
func (s *Server) flags() []string {
	var ranges []string
	for _, cidr := range s.options.ServiceCIDRs {
		ranges = append(ranges, cidr.String())
	}
	return append([]string{
		"--bind-address=" + loopback.String(),
		fmt.Sprintf("--secure-port=%d", s.port),
		"--advertise-address=" + s.options.Advertise.String(),
		"--etcd-servers=" + s.store.url(),
		"--etcd-healthcheck-timeout=30s",
		"--etcd-readycheck-timeout=30s",
		"--service-cluster-ip-range=" + strings.Join(ranges, ","),
		"--client-ca-file=" + s.path("ca.crt"),
		"--tls-cert-file=" + s.path("serving.crt"),
		"--tls-private-key-file=" + s.path("serving.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.path("tokens.crt"),
		"--service-account-signing-key-file=" + s.path("tokens.key"),
		"--authorization-mode=RBAC",
		"--allow-privileged", // as everywhere: proxies and networks are pods of clusters
		// Otherwise Stop takes a minute while there are watches.
		"--shutdown-watch-termination-grace-period=5s",
	}, s.options.Flags...)
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

var loopback = netip.MustParseAddr("127.0.0.1")

// freePort returns a free port, below the ephemeral ports and the node ports, so
// that it is still free when a server is restarted later.
func freePort() (uint16, error) {
	const first, count = 20000, 10000
	var err error
	for range 100 {
		port := uint16(first + rand.IntN(count))
		var l net.Listener
		if l, err = net.Listen("tcp", netip.AddrPortFrom(loopback, port).String()); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}
