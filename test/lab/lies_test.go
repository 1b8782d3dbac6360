//go:build linux

package lab_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/internal/testkit"
	"sluice/test/fakeapi"
	"sluice/test/lab"
)

// apiService is a Service of an API server, with one port.
func apiService(name, ip string, port int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, Ports: []corev1.ServicePort{{Port: port, Protocol: corev1.ProtocolTCP}}},
	}
}

// apiSlice are its endpoints, at port 8080 if no others are given.
func apiSlice(service string, family discoveryv1.AddressType, addresses []string, ports ...int32) *discoveryv1.EndpointSlice {
	protocol, name := corev1.ProtocolTCP, ""
	s := &discoveryv1.EndpointSlice{AddressType: family, ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
	if len(ports) == 0 {
		ports = []int32{8080}
	}
	for i := range ports {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Port: &ports[i], Protocol: &protocol})
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

// cut is as much of a word as names have at most.
func cut(word string) string { return word[:min(len(word), 253)] }

// brokenObjects are what no API server accepts, and what one may have accepted once.
func brokenObjects() (all []fakeapi.Object) {
	words := []string{"nul\x00", "../../x", "\x1b[2J", "\u202ereversed", "<script>alert(1)</script>", "%s%n", "{{.}}", strings.Repeat("9", 100_000)}
	for i, ip := range []string{
		"::ffff:10.98.0.1", "010.098.000.001", "10.98.0.6 ", "", "None", "0.0.0.0", "127.0.0.1", "169.254.169.254", "224.0.0.1",
		"255.255.255.255", "fe80::1%eth0", "10.98.0.300",
	} {
		all = append(all, apiService(fmt.Sprint("address-", i), ip, 80))
	}
	for i, port := range []int32{0, -1, 70000} {
		all = append(all, apiService(fmt.Sprint("port-", i), fmt.Sprint("10.98.1.", i+1), port))
	}
	for i, word := range words {
		annotated, slice := apiService(fmt.Sprint("word-", i), fmt.Sprint("10.98.4.", i+1), 80), apiSlice(fmt.Sprint("word-", i), discoveryv1.AddressTypeIPv4, []string{"10.244.1.2"})
		annotated.Annotations, slice.Annotations = map[string]string{"sluice/algorithm": word}, map[string]string{"sluice/weight": word}
		all = append(all, apiService(cut(word), fmt.Sprint("10.98.2.", i+1), 80), annotated, slice)
	}
	balanced := apiService("balanced", "10.98.3.3", 7070)
	balanced.Spec.Type, balanced.Spec.ExternalIPs = corev1.ServiceTypeLoadBalancer, []string{"", "0.0.0.0", "127.0.0.1"}
	balanced.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ""}, {IP: "0.0.0.0"}, {IP: "127.0.0.1"}}
	all = append(all, apiService("bad", "10.98.3.1", 80), apiService("twice", "10.98.3.2", 80),
		balanced, apiSlice("balanced", discoveryv1.AddressTypeIPv4, []string{"10.244.1.2"}))
	many := make([]string, 1000)
	for i := range many {
		many[i] = "10.244.1.2"
	}
	return append(all,
		apiSlice("twice", discoveryv1.AddressTypeIPv4, many),
		apiSlice("bad", discoveryv1.AddressTypeIPv4, []string{"::ffff:10.244.1.9", "010.244.001.010", "10.244.1.11\x00", "10.244.1.12\n",
			"169.254.169.254", "127.0.0.1", "0.0.0.0", "224.0.0.5", "255.255.255.255", ""}, -1, 70000, 0),
		apiSlice("port-0", discoveryv1.AddressTypeIPv6, []string{"::1", "fe80::1", "ff02::1", "::ffff:127.0.0.1", "::"}),
		apiSlice("port-1", "FQDN", []string{"example.com"}),
	)
}

// following is a proxy that follows an API server, with a Service to see by whether it does.
type following struct {
	*testing.T
	lab     *lab.Lab
	asker   *asker
	api     *fakeapi.Server
	hangUp  func() error
	address string
	proxy   *lab.Proxy
	turn    int
}

func follow(t *testing.T, objects ...fakeapi.Object) *following {
	t.Helper()
	f := &following{T: t, lab: lab.Start(t), api: fakeapi.New()}
	t.Cleanup(func() { f.api.Close() })
	a, flag := newAsker(t, f.lab)
	f.asker = a
	listener := listenOn(t, a.node, "127.0.0.1:0")
	f.address, f.hangUp = listener.Addr().String(), f.api.Serve(listener)
	f.put(append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}})...)
	f.proxy = launch(t, f.lab, lab.ProxyOptions{Flags: []string{flag, "--manifests=", "--proxy-mode=nftables", "--cluster-cidr=10.244.0.0/16", "--master=http://" + f.address}})
	a.ready()
	return f
}

func (f *following) put(objects ...fakeapi.Object) {
	f.Helper()
	if err := f.api.Put(objects...); err != nil {
		f.Fatal(err)
	}
}

// on returns the address of a pod.
func (f *following) on(pod string) []string {
	f.Helper()
	return []string{hostAddr(f.T, f.lab, pod).String()}
}

// news arrive.
func (f *following) news(after string) {
	f.Helper()
	f.turn++
	pod := []string{"pod1", "pod2"}[f.turn%2]
	f.put(apiService("beacon", "10.96.0.9", 80), apiSlice("beacon", discoveryv1.AddressTypeIPv4, f.on(pod)))
	testkit.Eventually(f.T, func() error {
		if o := f.lab.Connect(f.Context(), fromPod("10.96.0.9:80")); o.By != pod {
			return fmt.Errorf("after %s: %v, want %s", after, o, pod)
		}
		return nil
	})
}

func fromPod(to string) lab.Flow {
	return lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort(to), Timeout: lab.DefaultTimeout}
}

// unlisted is a fault that refuses watches of what was not listed since, and answers lists like another one.
func unlisted(lists *atomic.Int32, answer fakeapi.Fault) fakeapi.Fault {
	var listed sync.Map
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Query().Get("watch") != "true" {
			lists.Add(1)
			answer(w, r, next)
			listed.Store(r.URL.Path, true)
		} else if _, ok := listed.Load(r.URL.Path); ok || r.URL.Query().Get("sendInitialEvents") == "true" { // which is refused
			next.ServeHTTP(w, r)
		} else {
			fakeapi.Faults["says that watches are too old"](w, r, next)
		}
	}
}

// Whatever an API server sends, in whatever order, and however it fails, Services that are right work,
// and its news arrive.
func TestAPIServerIsNotTrusted(t *testing.T) {
	t.Parallel()
	f := follow(t, apiService("good", "10.96.0.1", 80))
	f.put(apiSlice("good", discoveryv1.AddressTypeIPv4, f.on("pod1")))
	f.news("the start")
	traffic, err := f.lab.StartTraffic(t.Context(), []lab.Flow{fromPod("10.96.0.1:80")}, lab.TrafficOptions{Sessions: 1})
	if err != nil {
		t.Fatal(err)
	}

	late := func(version string, port int32) *corev1.Service {
		s := apiService("late", "10.98.9.2", port)
		s.ResourceVersion = version
		return s
	}
	for _, e := range []struct {
		event  string
		object fakeapi.Object
	}{
		{"DELETED", apiService("nobody", "10.98.9.1", 1)}, {"MODIFIED", late("900000", 2)}, {"MODIFIED", late("5", 3)},
		{"ADDED", late("5", 3)}, {"ADDED", late("5", 3)}, {"MODIFIED", apiSlice("nowhere", discoveryv1.AddressTypeIPv4, []string{"10.244.1.1"})},
	} {
		if err := f.api.Send(e.event, e.object); err != nil {
			t.Fatal(err)
		}
	}
	f.news("events that are not true")

	broken := brokenObjects()
	f.put(broken...)
	f.news("broken objects")
	for _, to := range []string{"10.98.3.2:80", "10.98.3.3:7070", "10.98.4.1:80", "10.98.4.8:80"} {
		eventually(t, func() bool { return f.lab.Connect(t.Context(), fromPod(to)).Kind == lab.Answered })
	}
	own := lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:7070")}
	if o := f.lab.Connect(t.Context(), own); o.By != "node1" {
		t.Errorf("what listens on the node: %v", o)
	}
	services, _, _ := f.asker.ask("services")
	status, _, _ := f.asker.ask("status")
	for what, text := range map[string]string{"log": f.proxy.Log().String(), "list of Services": services, "status": status, "page": metricsPage(f.lab, "/")} {
		if strings.ContainsAny(text, "\x00\x1b\u202e") || what == "page" && strings.Contains(text, "<script>alert") {
			t.Errorf("the %s has raw text of an object:\n%q", what, text)
		}
		if strings.Contains(text, strings.Repeat("9", 254)) {
			t.Errorf("the %s has all of a long text", what)
		}
	}
	if err := f.api.Delete(broken...); err != nil {
		t.Fatal(err)
	}
	f.news("the end of broken objects")

	for _, fault := range []string{"sends lists in drips", "breaks off in the middle"} {
		var lists atomic.Int32
		f.api.SetFault(unlisted(&lists, fakeapi.Faults[fault]))
		f.api.Disconnect()
		eventually(t, func() bool { return lists.Load() >= 3 })
		f.api.SetFault(nil)
		f.api.Disconnect()
		f.news("an API server that " + fault)
	}
	if count := traffic.Stop(); count.Lost() > 0 {
		t.Errorf("the good Service was disturbed: %v", count)
	}
}

// Where another cluster takes the place of the one that went away, what that had stays until then, and
// then gives way to what the other one has.
func TestAnotherClusterTakesThePlace(t *testing.T) {
	t.Parallel()
	f := follow(t, apiService("good", "10.96.0.1", 80))
	f.put(apiSlice("good", discoveryv1.AddressTypeIPv4, f.on("pod1")))
	f.news("the start")
	if err := f.hangUp(); err != nil {
		t.Fatal(err)
	}
	f.api.Close()
	eventually(t, func() bool {
		return strings.Contains(metricsPage(f.lab, "/metrics"), "\nsluice_api_server_connected 0\n")
	})
	said(t, f.asker, f.lab, "serving the past", "the API server has not been reachable for ", 1)
	judged(t, f.asker, f.lab, goodAddress)

	f.api = fakeapi.New()
	f.put(apiService("other", "10.96.0.2", 80), apiSlice("other", discoveryv1.AddressTypeIPv4, f.on("pod1")))
	var lists atomic.Int32
	f.api.SetFault(unlisted(&lists, func(w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) }))
	f.api.Serve(listenOn(t, f.asker.node, f.address))
	f.news("another cluster took the place")
	eventually(t, func() bool { return f.lab.Connect(t.Context(), fromPod("10.96.0.2:80")).Kind == lab.Answered })
	gone := fromPod("10.96.0.1:80")
	gone.Timeout = lab.ShortTimeout
	eventually(t, func() bool { return f.lab.Connect(t.Context(), gone).Kind != lab.Answered })
	said(t, f.asker, f.lab, "serving", "", 0)
	if out, errs, code := f.asker.ask("explain", "default/good"); code != 1 || !strings.Contains(out, "NO SUCH SERVICE") {
		t.Errorf("explain of what is gone ends with %d: %s%s", code, out, errs)
	}
}
