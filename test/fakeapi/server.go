package fakeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Object is an object of the API: a Service, EndpointSlice, Node or ServiceCIDR.
type Object interface {
	metav1.Object
	runtime.Object
}

// Server is an API server. Its methods may be used by several goroutines.
type Server struct {
	mutex   sync.Mutex
	version int
	kinds   map[string]*kind // by path
	servers []*http.Server
	conns   map[net.Conn]struct{}
	fault   Fault
	closed  chan struct{}
}

// kind holds all objects of a kind.
type kind struct {
	schema.GroupVersionKind
	resource string
	objects  map[string]Object // by namespace and name
	log      []*change         // the last ones
	dropped  int               // version of the last change that is no longer in the log
	changed  chan struct{}     // closed at the next change
	upToDate int               // watches that were sent all changes
}

type change struct {
	version int
	event   string
	object  Object
	was     Object               // before it was modified, nil otherwise
	encoded map[*encoding][]byte // as far as somebody watched
}

// in returns the event in an encoding.
func (c *change) in(e *encoding) ([]byte, error) {
	if c.encoded[e] == nil {
		text, err := e.event(c.event, c.object)
		if err != nil {
			return nil, err
		}
		c.encoded[e] = text
	}
	return c.encoded[e], nil
}

// forSelected returns the event for watchers of selected objects, nil if they are not told of it. An object that is
// selected no more is deleted for them.
func (c *change) forSelected(selected func(Object) bool, e *encoding) ([]byte, error) {
	switch {
	case selected(c.object):
		return c.in(e)
	case c.was != nil && selected(c.was):
		return e.event("DELETED", c.object)
	}
	return nil, nil
}

// New returns a server without objects.
func New() *Server {
	s := &Server{version: 1, kinds: map[string]*kind{}, conns: map[net.Conn]struct{}{}, closed: make(chan struct{})}
	s.add(corev1.SchemeGroupVersion.WithKind("Service"), "services")
	s.add(corev1.SchemeGroupVersion.WithKind("Node"), "nodes")
	s.add(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), "endpointslices")
	s.add(networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"), "servicecidrs")
	return s
}

func (s *Server) add(gvk schema.GroupVersionKind, resource string) {
	path := "/apis/" + gvk.GroupVersion().String()
	if gvk.Group == "" {
		path = "/api/" + gvk.Version
	}
	s.kinds[path+"/"+resource] = &kind{
		GroupVersionKind: gvk, resource: resource, objects: map[string]Object{}, changed: make(chan struct{})}
}

// Serve answers connections to the listener, until Close or stop is called: then
// nothing listens there any more.
func (s *Server) Serve(listener net.Listener) (stop func() error) {
	server := &http.Server{Handler: s, ConnState: s.track}
	s.mutex.Lock()
	s.servers = append(s.servers, server)
	s.mutex.Unlock()
	go func() { _ = server.Serve(listener) }() // it ends by Close
	return func() error {
		err := server.Close()
		if again := listener.Close(); err == nil && !errors.Is(again, net.ErrClosed) {
			err = again // Serve may not have come to know of it
		}
		return err
	}
}

// track tracks open connections.
func (s *Server) track(c net.Conn, state http.ConnState) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch state {
	case http.StateNew:
		s.conns[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, c)
	}
}

// Close ends all connections and closes all listeners.
func (s *Server) Close() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	close(s.closed)
	var errs []error
	for _, server := range s.servers {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}

// Set replaces all objects. Watchers are notified of the differences, kind by kind,
// ordered by name.
func (s *Server) Set(objects []Object) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	wanted := map[*kind]map[string]Object{}
	for _, o := range objects {
		k, err := s.kindOf(o)
		if err != nil {
			return err
		}
		if wanted[k] == nil {
			wanted[k] = map[string]Object{}
		}
		wanted[k][keyOf(o)] = o.DeepCopyObject().(Object)
	}
	for _, k := range s.kinds {
		s.replace(k, wanted[k])
	}
	return nil
}

// Put adds objects, or replaces those of the same names.
func (s *Server) Put(objects ...Object) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, o := range objects {
		k, err := s.kindOf(o)
		if err != nil {
			return err
		}
		s.put(k, keyOf(o), o.DeepCopyObject().(Object))
	}
	return nil
}

// Delete removes objects, if they are there.
func (s *Server) Delete(objects ...Object) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, o := range objects {
		k, err := s.kindOf(o)
		if err != nil {
			return err
		}
		if k.objects[keyOf(o)] != nil {
			s.remove(k, keyOf(o))
		}
	}
	return nil
}

func (s *Server) kindOf(o Object) (*kind, error) {
	name := reflect.TypeOf(o).Elem().Name()
	for _, k := range s.kinds {
		if k.Kind == name {
			return k, nil
		}
	}
	return nil, fmt.Errorf("a %s is not served", name)
}

func (s *Server) replace(k *kind, wanted map[string]Object) {
	for _, key := range slices.Sorted(maps.Keys(k.objects)) {
		if wanted[key] == nil {
			s.remove(k, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		s.put(k, key, wanted[key])
	}
}

func (s *Server) remove(k *kind, key string) {
	old := k.objects[key]
	delete(k.objects, key)
	s.change(k, "DELETED", old.DeepCopyObject().(Object), nil)
}

// put adds or replaces an object, unless it is the same.
func (s *Server) put(k *kind, key string, o Object) {
	event, old := "ADDED", k.objects[key]
	if old != nil {
		event = "MODIFIED"
		o.SetResourceVersion(old.GetResourceVersion())
		o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
		if reflect.DeepEqual(old, o) {
			return
		}
	}
	k.objects[key] = o
	s.change(k, event, o, old)
}

// change gives an object its next version and notifies watchers.
func (s *Server) change(k *kind, event string, o, was Object) {
	o.SetResourceVersion(strconv.Itoa(s.version + 1))
	s.notify(k, event, o, was)
}

// Send sends an event to watchers as it is, also if it is not true. The object has the version that it is given.
func (s *Server) Send(event string, o Object) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	k, err := s.kindOf(o)
	if err != nil {
		return err
	}
	s.notify(k, event, o.DeepCopyObject().(Object), nil)
	return nil
}

// notify logs an event and wakes watchers.
func (s *Server) notify(k *kind, event string, o, was Object) {
	s.version++
	o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	k.log = append(k.log, &change{s.version, event, o, was, map[*encoding][]byte{}})
	if len(k.log) > 2*maxChanges {
		k.dropped = k.log[maxChanges-1].version
		k.log = slices.Clone(k.log[maxChanges:])
	}
	close(k.changed)
	k.changed, k.upToDate = make(chan struct{}), 0
}

// Followed reports whether each kind is watched by a client that was sent all changes.
func (s *Server) Followed() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, k := range s.kinds {
		if k.upToDate == 0 {
			return false
		}
	}
	return true
}

// maxChanges is how many changes of a kind are kept at least. Clients that request
// older ones must list.
const maxChanges = 1000

func keyOf(o Object) string { return o.GetNamespace() + "/" + o.GetName() }

// ServeHTTP implements http.Handler. Objects that are posted, which are Events, are
// accepted and discarded.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mutex.Lock()
	fault := s.fault
	s.mutex.Unlock()
	if fault != nil {
		fault(w, r, http.HandlerFunc(s.answer))
		return
	}
	s.answer(w, r)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	s.mutex.Lock()
	k := s.kinds[r.URL.Path]
	s.mutex.Unlock()
	switch {
	case r.Method == http.MethodPost || r.Method == http.MethodPatch:
		s.accept(w, r)
	case k == nil:
		s.discover(w, r)
	case r.URL.Query().Get("watch") == "true":
		s.watch(w, r, k)
	default:
		s.list(w, r, k)
	}
}

func (s *Server) accept(w http.ResponseWriter, r *http.Request) {
	object, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(object)
}

// discover returns the resources of a group and version.
func (s *Server) discover(w http.ResponseWriter, r *http.Request) {
	var list metav1.APIResourceList
	for path, k := range s.kinds {
		if path == r.URL.Path+"/"+k.resource {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: k.resource, Kind: k.Kind})
		}
	}
	if len(list.APIResources) == 0 {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_ = json.NewEncoder(w).Encode(list) // who went away need not know
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, k *kind) {
	selected, err := selector(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	items := []runtime.Object{}
	for _, key := range slices.Sorted(maps.Keys(k.objects)) {
		if selected(k.objects[key]) {
			items = append(items, k.objects[key])
		}
	}
	encoding := encodingFor(r)
	text, err := k.listOf(items, s.version, encoding)
	if err != nil {
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
		return
	}
	w.Header().Set("Content-Type", encoding.contentType)
	_, _ = w.Write(text)
}

// listOf is a list of objects.
func (k *kind) listOf(items []runtime.Object, version int, e *encoding) ([]byte, error) {
	gvk := k.GroupVersion().WithKind(k.Kind + "List")
	list, err := scheme.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	list.GetObjectKind().SetGroupVersionKind(gvk)
	if err := meta.SetList(list, items); err != nil {
		return nil, err
	}
	header, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	header.SetResourceVersion(strconv.Itoa(version))
	return e.object(list)
}

// watch sends changes. Streaming lists are refused, as by older API servers:
// clients fall back to ordinary ones.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, k *kind) {
	selected, err := selector(r)
	since, notNumber := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	switch {
	case r.URL.Query().Get("sendInitialEvents") == "true":
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		return
	case err != nil || notNumber != nil:
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	encoding := encodingFor(r)
	w.Header().Set("Content-Type", encoding.contentType+";stream=watch")
	for {
		var changed chan struct{}
		since, changed = s.send(w, k, since, selected, encoding)
		if changed == nil {
			return
		}
		select {
		case <-r.Context().Done():
			s.unfollow(k, changed)
			return
		case <-s.closed:
			return
		case <-changed:
		}
	}
}

// unfollow ends a watch that waits for a change.
func (s *Server) unfollow(k *kind, change chan struct{}) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if change == k.changed {
		k.upToDate--
	}
}

// send writes the events since a version. It returns the current version, and a
// channel for the next change; nil if the version is too old.
func (s *Server) send(w http.ResponseWriter, k *kind, since int, selected func(Object) bool, e *encoding) (int, chan struct{}) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if since < k.dropped {
		text, err := e.event("ERROR", status(http.StatusGone, metav1.StatusReasonExpired))
		if err == nil {
			_, _ = w.Write(text)
		}
		return since, nil
	}
	for _, c := range k.log {
		if c.version <= since {
			continue
		}
		text, err := c.forSelected(selected, e)
		if err != nil {
			return since, nil
		}
		_, _ = w.Write(text)
		since = c.version
	}
	w.(http.Flusher).Flush()
	k.upToDate++
	return since, k.changed
}

// selector returns a filter for the objects of a request.
func selector(r *http.Request) (func(Object) bool, error) {
	byLabel, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, err
	}
	byField, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	return func(o Object) bool {
		known := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
		if service, ok := o.(*corev1.Service); ok {
			known["spec.clusterIP"] = service.Spec.ClusterIP
		}
		return byLabel.Matches(labels.Set(o.GetLabels())) && byField.Matches(known)
	}, nil
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status(code, reason))
}

func status(code int, reason metav1.StatusReason) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: strings.ToLower(string(reason)),
	}
}
