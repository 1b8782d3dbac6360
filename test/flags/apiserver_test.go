//go:build linux

package flags

import (
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The addresses of the API server, on the host of the proxy.
const (
	firstServer  = "http://127.0.0.1:6443"
	secondServer = "http://127.0.0.1:6444"
)

// apiServer records its requests. It has no objects, and knows only some kinds.
type apiServer struct {
	mu       sync.Mutex
	requests []*http.Request
}

// startAPIServer starts it on the host of the proxy and writes a kubeconfig for it.
func (p *proxy) startAPIServer() {
	p.Helper()
	p.api = &apiServer{}
	for _, address := range []string{firstServer, secondServer} {
		listener := p.listen(strings.TrimPrefix(address, "http://"))
		s := &http.Server{Handler: p.api}
		go s.Serve(listener)
		p.Cleanup(func() {
			s.Close()
			listener.Close() // Serve may not have come to know of it
		})
	}
	p.write("kubeconfig", `{apiVersion: v1, kind: Config, current-context: lab,
  contexts: [{name: lab, context: {cluster: lab, user: lab}}],
  clusters: [{name: lab, cluster: {server: "`+firstServer+`"}}],
  users: [{name: lab, user: {}}]}`)
}

// listen listens on the host of the proxy. A process forked while another run had
// the address may hold it until it calls exec.
func (p *proxy) listen(address string) (listener net.Listener) {
	p.Helper()
	var err error
	listening := p.eventually(func() bool {
		err = p.host.Do(func() (err error) { listener, err = net.Listen("tcp", address); return err })
		return err == nil
	})
	if !listening {
		p.Fatal(err)
	}
	return listener
}

// known are the resources that the server has: their versions and kinds.
var known = map[string][2]string{
	"/api/v1/services": {"v1", "Service"},
	"/api/v1/nodes":    {"v1", "Node"},
	"/apis/discovery.k8s.io/v1/endpointslices":         {"discovery.k8s.io/v1", "EndpointSlice"},
	"/apis/events.k8s.io/v1/namespaces/default/events": {"events.k8s.io/v1", "Event"},
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	resource, found := known[r.URL.Path]
	version, kind := resource[0], resource[1]
	switch {
	case !found:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodPost:
		w.WriteHeader(http.StatusCreated)
		answer(w, map[string]any{"kind": kind, "apiVersion": version})
	case r.URL.Query().Get("sendInitialEvents") == "true":
		// Lists must be visible, so it does not stream them.
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case r.URL.Query().Get("watch") == "true":
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		answer(w, map[string]any{"kind": kind + "List", "apiVersion": version, "metadata": map[string]any{"resourceVersion": "7"}, "items": []any{}})
	}
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	answer(w, map[string]any{"kind": "Status", "apiVersion": "v1", "status": metav1.StatusFailure, "reason": reason, "code": code})
}

func answer(w http.ResponseWriter, body any) {
	_ = json.NewEncoder(w).Encode(body) // the proxy may be gone
}

func (s *apiServer) all() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[:len(s.requests):len(s.requests)]
}

// header returns a header of the first request of a method.
func header(method, name string) func(*proxy) string {
	return func(p *proxy) string {
		for _, r := range p.api.all() {
			if r.Method != method {
				continue
			}
			if value := r.Header.Get(name); value != "" {
				return value
			}
			return none
		}
		return "no such request"
	}
}

// asked returns the address of the server that got requests.
func asked(p *proxy) string {
	for _, r := range p.api.all() {
		return "http://" + r.Host
	}
	return none
}

// looksAgain reports whether the proxy keeps requesting what the server lacks.
func looksAgain(p *proxy) string {
	count := map[string]int{}
	most := 0
	for _, r := range p.api.all() {
		if _, found := known[r.URL.Path]; !found {
			count[r.URL.Path]++
			most = max(most, count[r.URL.Path])
		}
	}
	return yesIf(most > 2)
}

// requests counts the requests, if they are few and no more come. The client
// library limits all but watches.
func requests(p *proxy) string {
	const few = 2
	time.Sleep(500 * time.Millisecond)
	n := 0
	for _, r := range p.api.all() {
		if r.URL.Query().Get("watch") == "" {
			n++
		}
	}
	if n > few {
		return "more"
	}
	return strconv.Itoa(n)
}

// clientLogsAsItself reports whether lines that the client library logs lack the
// name of the component that uses it.
func clientLogsAsItself(p *proxy) string {
	for line := range strings.Lines(p.stderr.String()) {
		if strings.Contains(line, "reflector.go") {
			return yesIf(!strings.Contains(line, `logger="kubernetes"`))
		}
	}
	return "no such line"
}
