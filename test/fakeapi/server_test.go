package fakeapi

import (
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"sluice/internal/testkit"
)

// start starts a server and a client of it.
func start(t *testing.T, contentType string) (kubernetes.Interface, *Server) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := New()
	server.Serve(listener)
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://" + listener.Addr().String(),
		ContentConfig: rest.ContentConfig{ContentType: contentType}})
	if err != nil {
		t.Fatal(err)
	}
	return client, server
}

// inEach runs a test with clients of each encoding.
func inEach(t *testing.T, test func(t *testing.T, contentType string)) {
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(contentType, func(t *testing.T) { test(t, contentType) })
	}
}

// An informer, as kube-proxies use, sees the objects that it selects, and their
// changes.
func TestInformerFollows(t *testing.T) { inEach(t, informerFollows) }

func informerFollows(t *testing.T, contentType string) {
	client, server := start(t, contentType)
	set := func(objects ...Object) {
		if err := server.Set(objects); err != nil {
			t.Fatal(err)
		}
	}
	set(service("web", "10.96.0.1"), service("headless", "None"))
	seen := make(chan string, 10)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(
		func(o *metav1.ListOptions) { o.FieldSelector = "spec.clusterIP!=None" }))
	_, err := factory.Core().V1().Services().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { seen <- "added " + o.(*corev1.Service).Name },
		UpdateFunc: func(_, o any) { seen <- "changed to " + o.(*corev1.Service).Spec.ClusterIP },
		DeleteFunc: func(o any) { seen <- "deleted " + o.(*corev1.Service).Name },
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	expect := func(want string) {
		t.Helper()
		if got := testkit.Receive(t, seen, want); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	expect("added web")
	set(service("web", "10.96.0.1")) // is no change
	set(service("web", "10.96.0.2"), service("also-headless", "None"))
	expect("changed to 10.96.0.2")
	set(service("web", "None")) // is selected no more
	expect("deleted web")
	set(service("web", "10.96.0.2"))
	expect("added web")
	set(service("next", "10.96.0.3"))
	expect("deleted web")
	expect("added next")
	for _, err := range []error{
		server.Put(service("next", "10.96.0.3")), // is no change
		server.Put(service("next", "10.96.0.4"), service("other", "10.96.0.5")),
		server.Delete(service("next", ""), service("gone", "")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	expect("changed to 10.96.0.4")
	expect("added other")
	expect("deleted next")
}

// Followed tells when clients of all kinds have everything, and when one went away.
func TestFollowed(t *testing.T) {
	client, server := start(t, runtime.ContentTypeProtobuf)
	if server.Followed() {
		t.Error("nobody watches")
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	factory.Core().V1().Services().Informer()
	factory.Core().V1().Nodes().Informer()
	factory.Discovery().V1().EndpointSlices().Informer()
	others, last := factory, informers.NewSharedInformerFactory(client, 0)
	last.Networking().V1().ServiceCIDRs().Informer()
	others.Start(t.Context().Done())
	others.WaitForCacheSync(t.Context().Done())
	if server.Followed() {
		t.Error("nobody watches ServiceCIDRs")
	}
	gone := make(chan struct{})
	last.Start(gone)
	testkit.Until(t, server.Followed)
	if err := server.Set([]Object{service("web", "10.96.0.1")}); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, server.Followed)
	close(gone)
	testkit.Until(t, func() bool { return !server.Followed() })
}

// After any fault, an informer eventually sees the current objects.
func TestInformerOutlivesFaults(t *testing.T) {
	for name, fault := range Faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, server := start(t, runtime.ContentTypeProtobuf)
			factory := informers.NewSharedInformerFactory(client, 0)
			lister := factory.Core().V1().Services().Lister()
			factory.Core().V1().Services().Informer()
			factory.Start(t.Context().Done())
			factory.WaitForCacheSync(t.Context().Done())
			var met atomic.Bool
			server.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				met.Store(true)
				fault(w, r, next)
			})
			server.Disconnect()
			if err := server.Set([]Object{service("web", "10.96.0.1")}); err != nil {
				t.Fatal(err)
			}
			testkit.Until(t, met.Load)
			server.SetFault(nil)
			server.Disconnect()
			testkit.Eventually(t, func() error {
				if all, err := lister.List(labels.Everything()); err != nil || len(all) != 1 {
					return fmt.Errorf("there are %v, %w", all, err)
				}
				return nil
			})
		})
	}
}

func TestWatchThatIsTooOldEnds(t *testing.T) { inEach(t, watchThatIsTooOldEnds) }

func watchThatIsTooOldEnds(t *testing.T, contentType string) {
	client, server := start(t, contentType)
	for i := range 2*maxChanges + 1 {
		if err := server.Set([]Object{service("web", fmt.Sprint("10.96.0.", i))}); err != nil {
			t.Fatal(err)
		}
	}
	watch, err := client.CoreV1().Services("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if event := <-watch.ResultChan(); event.Type != "ERROR" {
		t.Errorf("the watch begins with %+v", event)
	}
}

func TestEventIsTaken(t *testing.T) { inEach(t, eventIsTaken) }

func eventIsTaken(t *testing.T, contentType string) {
	client, _ := start(t, contentType)
	event := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "started"}, Reason: "Starting"}
	kept, err := client.EventsV1().Events("default").Create(t.Context(), event, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if kept.Reason != event.Reason {
		t.Errorf("it comes back as %+v", kept)
	}
}

func service(name, clusterIP string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{ClusterIP: clusterIP}}
}

func TestUnknownKindIsRefused(t *testing.T) {
	if err := New().Set([]Object{&corev1.Pod{}}); err == nil {
		t.Error("a Pod is accepted")
	}
}
