package apiserver

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"sluice/internal/testkit"
)

var serviceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")}

func startServer(t *testing.T) *Server {
	t.Helper()
	s, err := Start(t.Context(), Options{ServiceCIDRs: serviceCIDRs, Advertise: netip.MustParseAddr("192.0.2.20")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestServer tests everything with one server, because starting takes longest.
func TestServer(t *testing.T) {
	s := startServer(t)
	tests := []struct {
		name string
		run  func(*testing.T, *Server)
	}{
		{"services of all types get what their type needs", testServiceTypes},
		{"invalid services are refused", testInvalidServices},
		{"the API server is a service itself", testOwnService},
		{"kube-proxy may do its work and nothing else", testProxyRights},
		{"watches see changes", testWatch},
		{"the next user finds it as new", testReuse},
		{"objects survive a kill", func(t *testing.T, s *Server) { testRestart(t, s, s.Kill) }},
		{"objects survive a stop", func(t *testing.T, s *Server) { testRestart(t, s, s.Stop) }},
		{"old watches are gone after compaction", testCompaction},
		{"kube-proxy gets no more rights by a restart", testProxyRights},
		{"nobody uses it after that", testNoReuse},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}

// testReuse changes objects of all sorts, and finds nothing of it later.
func testReuse(t *testing.T, s *Server) {
	var pool Pool
	addressed := func() *corev1.Service {
		in := service("reused", corev1.ServiceTypeNodePort)
		in.Spec.ClusterIP, in.Spec.Ports[0].NodePort = "10.96.7.7", 30777
		return in
	}
	create(t, s, addressed())
	if _, err := s.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "reused"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const role = "system:node-proxier"
	if err := s.admin.RbacV1().ClusterRoles().Delete(t.Context(), role, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pool.Give(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if other := pool.find(Options{Advertise: s.asked.Advertise}); other != nil {
		t.Error("it is handed to somebody who wants another one")
	}
	again, err := pool.Take(t.Context(), s.asked)
	if err != nil || again != s {
		t.Fatalf("another server is started: %v", err)
	}
	for what, get := range map[string]func() error{
		"Service": func() error {
			_, err := s.admin.CoreV1().Services("default").Get(t.Context(), "reused", metav1.GetOptions{})
			return err
		},
		"Node": func() error {
			_, err := s.admin.CoreV1().Nodes().Get(t.Context(), "reused", metav1.GetOptions{})
			return err
		},
	} {
		if err := get(); !apierrors.IsNotFound(err) {
			t.Errorf("the %s of before is still there: %v", what, err)
		}
	}
	if _, err := s.admin.RbacV1().ClusterRoles().Get(t.Context(), role, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	create(t, s, addressed()) // both are free
}

func testNoReuse(t *testing.T, s *Server) {
	var pool Pool
	if err := pool.Give(t.Context(), s); err != nil || pool.find(s.asked) != nil {
		t.Errorf("a server that was killed is used again (%v)", err)
	}
}

func TestBinariesAreBuiltOnce(t *testing.T) {
	first, err := Build(t.Context(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	second, err := Build(t.Context(), func(what string) { t.Errorf("second time: %s", what) })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("other binaries the second time (-first +second):\n%s", diff)
	}
}

// service is a valid Service of a type.
func service(name string, kind corev1.ServiceType) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec:       corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

func create(t *testing.T, s *Server, service *corev1.Service) *corev1.Service {
	t.Helper()
	created, err := s.Admin().CoreV1().Services(service.Namespace).Create(t.Context(), service, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func testServiceTypes(t *testing.T, s *Server) {
	type allocated struct {
		Families  []string // of the cluster IPs
		NodePort  bool
		CheckPort bool // for health checks
	}
	dualStack, local := corev1.IPFamilyPolicyRequireDualStack, corev1.ServiceExternalTrafficPolicyLocal
	tests := []struct {
		name string
		in   corev1.ServiceType
		with func(*corev1.ServiceSpec)
		want allocated
	}{
		{"cluster-ip", corev1.ServiceTypeClusterIP, nil, allocated{Families: []string{"v4"}}},
		{"dual-stack", corev1.ServiceTypeClusterIP, func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = &dualStack },
			allocated{Families: []string{"v4", "v6"}}},
		{"headless", corev1.ServiceTypeClusterIP, func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone },
			allocated{Families: []string{"None"}}},
		{"node-port", corev1.ServiceTypeNodePort, nil, allocated{Families: []string{"v4"}, NodePort: true}},
		{"load-balancer", corev1.ServiceTypeLoadBalancer, func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = local },
			allocated{Families: []string{"v4"}, NodePort: true, CheckPort: true}},
		{"external-name", corev1.ServiceTypeExternalName, func(s *corev1.ServiceSpec) { s.ExternalName = "example.com" },
			allocated{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in := service(test.name, test.in)
			if test.with != nil {
				test.with(&in.Spec)
			}
			spec := create(t, s, in).Spec
			got := allocated{NodePort: spec.Ports[0].NodePort != 0, CheckPort: spec.HealthCheckNodePort != 0}
			for _, ip := range spec.ClusterIPs {
				got.Families = append(got.Families, familyOf(ip))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// familyOf returns the family of an address in the service range, and anything else
// unchanged.
func familyOf(ip string) string {
	a, err := netip.ParseAddr(ip)
	for i, family := range []string{"v4", "v6"} {
		if err == nil && serviceCIDRs[i].Contains(a) {
			return family
		}
	}
	return ip
}

func testInvalidServices(t *testing.T, s *Server) {
	taken := create(t, s, service("taken", corev1.ServiceTypeClusterIP)).Spec.ClusterIP
	tests := []struct {
		name string
		with func(*corev1.ServiceSpec)
	}{
		{"port-zero", func(s *corev1.ServiceSpec) { s.Ports[0].Port = 0 }},
		{"foreign-cluster-ip", func(s *corev1.ServiceSpec) { s.ClusterIP = "192.0.2.1" }},
		{"taken-cluster-ip", func(s *corev1.ServiceSpec) { s.ClusterIP = taken }},
		{"bad-external-ip", func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{"127.0.0.1"} }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in := service(test.name, corev1.ServiceTypeClusterIP)
			test.with(&in.Spec)
			_, err := s.Admin().CoreV1().Services(in.Namespace).Create(t.Context(), in, metav1.CreateOptions{})
			if !apierrors.IsInvalid(err) {
				t.Errorf("error %v, want one that says it is invalid", err)
			}
		})
	}
}

func testOwnService(t *testing.T, s *Server) {
	own, err := s.Admin().CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"10.96.0.1"}, own.Spec.ClusterIPs); diff != "" {
		t.Errorf("cluster IPs (-want +got):\n%s", diff)
	}
	slice, err := s.Admin().DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%s:%d", slice.Endpoints[0].Addresses[0], *slice.Ports[0].Port)
	if want := fmt.Sprintf("192.0.2.20:%d", s.Addr().Port()); got != want {
		t.Errorf("endpoint %s, want %s", got, want)
	}
}

func testProxyRights(t *testing.T, s *Server) {
	resource := func(verb, group, resource string) authorizationv1.SubjectAccessReviewSpec {
		return authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: group, Resource: resource}}
	}
	path := func(path string) authorizationv1.SubjectAccessReviewSpec {
		return authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{
			Verb: "get", Path: path}}
	}
	tests := []struct {
		name string
		ask  authorizationv1.SubjectAccessReviewSpec
		want bool
	}{
		{"list Services", resource("list", corev1.GroupName, "services"), true},
		{"watch Services", resource("watch", corev1.GroupName, "services"), true},
		{"list slices", resource("list", discoveryv1.GroupName, "endpointslices"), true},
		{"watch slices", resource("watch", discoveryv1.GroupName, "endpointslices"), true},
		{"get Nodes", resource("get", corev1.GroupName, "nodes"), true},
		{"watch Nodes", resource("watch", corev1.GroupName, "nodes"), true},
		{"list ServiceCIDRs", resource("list", "networking.k8s.io", "servicecidrs"), true},
		{"create Events", resource("create", "events.k8s.io", "events"), true},
		{"get Services", resource("get", corev1.GroupName, "services"), false},
		{"update Services", resource("update", corev1.GroupName, "services"), false},
		{"list secrets", resource("list", corev1.GroupName, "secrets"), false},
		{"ask for its rights", resource("create", authorizationv1.GroupName, "selfsubjectaccessreviews"), false},
		{"discover groups", path("/apis"), false},
		{"discover the core group", path("/api/v1"), false},
		{"discover another group", path("/apis/networking.k8s.io/v1"), false},
		{"ask for the version", path("/version"), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.ask.User, test.ask.Groups = KubeProxy.Name, append([]string{"system:authenticated"}, KubeProxy.Groups...)
			review, err := s.Admin().AuthorizationV1().SubjectAccessReviews().Create(t.Context(),
				&authorizationv1.SubjectAccessReview{Spec: test.ask}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if review.Status.Allowed != test.want {
				t.Errorf("allowed: %v, want %v", review.Status.Allowed, test.want)
			}
		})
	}
}

func testWatch(t *testing.T, s *Server) {
	services := s.Admin().CoreV1().Services("default")
	watcher, err := services.Watch(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=watched", ResourceVersion: currentVersion(t, s)})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	created := create(t, s, service("watched", corev1.ServiceTypeClusterIP))
	created.Spec.Ports[0].Port = 81
	if _, err := services.Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := services.Delete(t.Context(), "watched", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		if got := testkit.Receive(t, watcher.ResultChan(), fmt.Sprintf("the event %v", want)); got.Type != want {
			t.Errorf("%v %v, want %v", got.Type, got.Object, want)
		}
	}
}

func currentVersion(t *testing.T, s *Server) string {
	t.Helper()
	list, err := s.Admin().CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.ResourceVersion
}

func names(ctx context.Context, s *Server) ([]string, error) {
	list, err := s.Admin().CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Name+" "+item.Spec.ClusterIP)
	}
	slices.Sort(names)
	return names, nil
}

func testRestart(t *testing.T, s *Server, end func() error) {
	before, err := names(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	addr := s.Addr()
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if got, err := names(t.Context(), s); err == nil {
		t.Errorf("an API server that has ended answers %v", got)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := names(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" || addr != s.Addr() {
		t.Errorf("at %v, before at %v; services (-before +after):\n%s", s.Addr(), addr, diff)
	}
}

func testCompaction(t *testing.T, s *Server) {
	old := currentVersion(t, s)
	create(t, s, service("after-old", corev1.ServiceTypeClusterIP))
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The API server would still answer from memory.
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := watchFrom(t, s, old); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("watch from the old version: %v, want 410 Gone", err)
	}
}

// watchFrom returns how a watch from an old version fails, which the API server may
// report immediately or as an event.
func watchFrom(t *testing.T, s *Server, version string) error {
	t.Helper()
	watcher, err := s.Admin().CoreV1().Services("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	return apierrors.FromObject(testkit.Receive(t, watcher.ResultChan(), "the end of the watch").Object)
}
