package kubernetes

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// The resources that the API server can have.
const (
	servicesPath  = "/api/v1/services"
	nodesPath     = "/api/v1/nodes"
	endpointsPath = "/api/v1/endpoints"
	slicesPath    = "/apis/discovery.k8s.io/v1/endpointslices"
	cidrsPath     = "/apis/networking.k8s.io/v1/servicecidrs"
	cidrsBetaPath = "/apis/networking.k8s.io/v1beta1/servicecidrs"
)

var kindOfPath = map[string]string{
	servicesPath: "Service", nodesPath: "Node", endpointsPath: "Endpoints", slicesPath: "EndpointSlice",
	cidrsPath: "ServiceCIDR", cidrsBetaPath: "ServiceCIDR",
}

// apiServer plays a small API server: lists and watches in JSON. It does not look
// at selectors. A request for anything else fails the test, discovery above all:
// the role system:node-proxier does not allow it.
type apiServer struct {
	*testing.T
	address string
	server  *httptest.Server

	mu        sync.Mutex
	streams   bool // can stream lists
	version   int
	compacted int                  // what happened before is forgotten
	resources map[string]*resource // by path
	fault     http.HandlerFunc     // answers in its place, if set
	asked     map[string]url.Values
	requests  map[string]int
	lists     map[string]int
	watches   map[string][]string // the versions from which they were asked for
	dropped   chan struct{}       // closed to end all watches
}

type resource struct {
	objects map[string]object
	log     []logged
	changed chan struct{} // closed at the next change
}

type object interface {
	metav1.Object
	runtime.Object
}

type logged struct {
	version int
	event   []byte
}

func newAPIServer(t *testing.T, streams bool, paths ...string) *apiServer {
	t.Helper()
	s := &apiServer{
		T: t, streams: streams, version: 100, address: "127.0.0.1:0",
		resources: map[string]*resource{}, asked: map[string]url.Values{}, requests: map[string]int{}, lists: map[string]int{},
		watches: map[string][]string{},
	}
	s.serve(paths...)
	s.start()
	t.Cleanup(s.stop)
	return s
}

// serve adds resources.
func (s *apiServer) serve(paths ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range paths {
		s.resources[path] = &resource{objects: map[string]object{}, changed: make(chan struct{})}
	}
}

// unserve removes a resource.
func (s *apiServer) unserve(path string) {
	s.mu.Lock()
	delete(s.resources, path)
	s.mu.Unlock()
	s.drop()
}

// start listens, at the same address as the last time.
func (s *apiServer) start() {
	s.Helper()
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		s.Fatal(err)
	}
	s.address = listener.Addr().String()
	server := httptest.NewUnstartedServer(http.HandlerFunc(s.handle))
	server.Listener.Close()
	server.Listener = listener
	s.mu.Lock()
	s.dropped = make(chan struct{})
	s.mu.Unlock()
	server.Start()
	s.server = server
}

// stop refuses connections, and ends those that there are. Watches that still
// get through end at once, or closing the server would wait for them.
func (s *apiServer) stop() {
	s.mu.Lock()
	close(s.dropped)
	s.mu.Unlock()
	s.server.CloseClientConnections()
	s.server.Close()
}

func (s *apiServer) client() clientset.Interface {
	s.Helper()
	client, err := clientset.NewForConfig(&rest.Config{Host: "http://" + s.address, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}})
	if err != nil {
		s.Fatal(err)
	}
	return client
}

// put creates or updates objects.
func (s *apiServer) put(path string, objects ...object) {
	for _, o := range objects {
		s.change(path, o, "")
	}
}

// remove deletes an object.
func (s *apiServer) remove(path string, o object) { s.change(path, o, "DELETED") }

func (s *apiServer) change(path string, o object, event string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	r, key := s.resources[path], o.GetNamespace()+"/"+o.GetName()
	o = o.DeepCopyObject().(object)
	o.SetResourceVersion(strconv.Itoa(s.version))
	o.GetObjectKind().SetGroupVersionKind(versionOf(path).WithKind(kindOfPath[path]))
	if event == "" {
		event = "ADDED"
		if r.objects[key] != nil {
			event = "MODIFIED"
		}
	}
	r.objects[key] = o
	if event == "DELETED" {
		delete(r.objects, key)
	}
	r.log = append(r.log, logged{s.version, eventOf(event, o)})
	close(r.changed)
	r.changed = make(chan struct{})
}

// drop ends all watches.
func (s *apiServer) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.dropped)
	s.dropped = make(chan struct{})
}

// compact forgets what happened so far.
func (s *apiServer) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.compacted = s.version
}

// setFault has another handler answer, nil for none.
func (s *apiServer) setFault(h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = h
}

// failAt has requests for one resource answered by a status.
func (s *apiServer) failAt(path string, code int, reason metav1.StatusReason) {
	s.setFault(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			s.answer(w, r)
			return
		}
		s.mu.Lock()
		s.requests[path]++
		s.mu.Unlock()
		refuse(w, code, reason)
	})
}

// asks counts the requests for a resource.
func (s *apiServer) asks(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[path]
}

func (s *apiServer) query(path string) url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

func (s *apiServer) listed(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists[path]
}

func (s *apiServer) watched(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.watches[path])
}

func (s *apiServer) handle(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	if fault != nil {
		fault(w, r)
		return
	}
	s.answer(w, r)
}

func (s *apiServer) answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	s.mu.Lock()
	res := s.resources[r.URL.Path]
	s.asked[r.URL.Path] = r.URL.Query()
	s.requests[r.URL.Path]++
	s.mu.Unlock()
	switch {
	case res == nil && kindOfPath[r.URL.Path] == "":
		s.Errorf("the server was asked for %s", r.URL.Path)
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden)
	case res == nil:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.URL.Query().Get("watch") == "true":
		s.watch(w, r, res)
	default:
		s.list(w, r, res)
	}
}

func (s *apiServer) list(w http.ResponseWriter, r *http.Request, res *resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists[r.URL.Path]++
	gvk := versionOf(r.URL.Path).WithKind(kindOfPath[r.URL.Path] + "List")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": gvk.Kind, "apiVersion": gvk.GroupVersion().String(),
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)},
		"items":    sorted(res.objects),
	})
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, res *resource) {
	s.mu.Lock()
	dropped := s.dropped
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	streamed := r.URL.Query().Get("sendInitialEvents") == "true"
	if streamed && !s.streams {
		s.mu.Unlock()
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		return
	}
	if since < s.compacted && !(streamed && since == 0) {
		s.mu.Unlock()
		refuse(w, http.StatusGone, metav1.StatusReasonExpired)
		return
	}
	if streamed {
		s.lists[r.URL.Path]++
	} else {
		s.watches[r.URL.Path] = append(s.watches[r.URL.Path], r.URL.Query().Get("resourceVersion"))
	}
	if streamed {
		for _, o := range sorted(res.objects) {
			_, _ = w.Write(eventOf("ADDED", o))
		}
		_, _ = w.Write(bookmark(r.URL.Path, s.version))
		since = s.version
	}
	s.mu.Unlock()
	for {
		var changed chan struct{}
		since, changed = s.send(w, res, since)
		select {
		case <-r.Context().Done():
			return
		case <-dropped:
			return
		case <-changed:
		}
	}
}

// send writes the events since a version. It returns the version now, and what
// reports the next change.
func (s *apiServer) send(w http.ResponseWriter, res *resource, since int) (int, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range res.log {
		if l.version > since {
			_, _ = w.Write(l.event)
			since = l.version
		}
	}
	w.(http.Flusher).Flush()
	return since, res.changed
}

func versionOf(path string) schema.GroupVersion {
	parts := strings.Split(path, "/")
	if parts[1] == "apis" {
		return schema.GroupVersion{Group: parts[2], Version: parts[3]}
	}
	return schema.GroupVersion{Version: parts[2]}
}

func sorted(objects map[string]object) []object {
	out := []object{}
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		out = append(out, objects[key])
	}
	return out
}

func eventOf(typ string, o any) []byte {
	data, err := json.Marshal(map[string]any{"type": typ, "object": o})
	if err != nil {
		panic(err)
	}
	return append(data, '\n')
}

func bookmark(path string, version int) []byte {
	return eventOf("BOOKMARK", map[string]any{
		"kind": kindOfPath[path], "apiVersion": versionOf(path).String(),
		"metadata": map[string]any{
			"resourceVersion": strconv.Itoa(version),
			"annotations":     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		},
	})
}

// refuse answers with a status.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: fmt.Sprintf("the answer is %s", reason),
	})
}

// hangUp ends a connection without an answer.
func hangUp(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	conn.Close()
}
