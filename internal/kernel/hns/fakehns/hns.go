package fakehns

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"sluice/internal/kernel/hns"
)

// Codes that only the fake returns.
const (
	InvalidHandle   hns.Code = 0x80070006
	InvalidType     hns.Code = 0x803b000b
	InvalidPolicy   hns.Code = 0x803b000d
	NetworkExists   hns.Code = 0x803b0010
	InvalidJSON     hns.Code = 0x803b001b
	InvalidIP       hns.Code = 0x803b001e
	InvalidPort     hns.Code = 0x803b002d
	AddressReserved hns.Code = 0x803b002f
)

// Document is an object as clients see it.
type Document = map[string]any

// Call is a function that a client calls.
type Call struct {
	Function string
	ID       string     `json:",omitempty"` // of the object, or of the handle's object
	Handle   hns.Handle `json:",omitempty"`
	Strings  []string   `json:",omitempty"`
	Failed   string     `json:",omitempty"`
}

// given is the ID that the client named, empty for none.
func (c Call) given() string {
	if id := key(c.ID); id != (hns.GUID{}).String() {
		return id
	}
	return ""
}

// HNS is the service. The zero value is ready to use.
type HNS struct {
	// Version is that of the service; the zero value stands for 15.5.
	Version hns.Version
	// Fault is asked before each call, which fails with the code unless that is 0. While clients call, it
	// is set by SetFault.
	Fault func(Call) hns.Code
	// Trace gets each call after it was made.
	Trace func(Call)

	mu         sync.Mutex
	objects    map[hns.Kind]map[string]Document // by ID
	order      map[string]int                   // of IDs, by creation
	handles    map[hns.Handle]opened
	last       hns.Handle
	violations []string
	calls      map[string]int
	total      int
}

type opened struct {
	kind hns.Kind
	id   string
}

// State is all that the service knows.
type State struct {
	Networks, Endpoints, LoadBalancers []Document
	// Violations are what no client should do, though the service lets it, or may let it.
	Violations []string
	// OpenHandles are those that were not closed.
	OpenHandles int
	// Calls counts them by function.
	Calls map[string]int
}

// State returns the state.
func (h *HNS) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return State{h.all(hns.Networks), h.all(hns.Endpoints), h.all(hns.LoadBalancers), slices.Clone(h.violations), len(h.handles), maps.Clone(h.calls)}
}

// Total is how many calls there were: while it is the same, so is the State.
func (h *HNS) Total() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.total
}

// Total is how many calls there were.
func (s State) Total() (n int) {
	for _, calls := range s.Calls {
		n += calls
	}
	return n
}

// SetFault sets Fault.
func (h *HNS) SetFault(fault func(Call) hns.Code) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Fault = fault
}

// DropHandles closes all handles, as when a client is killed.
func (h *HNS) DropHandles() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.handles)
}

func (h *HNS) all(k hns.Kind) []Document {
	return slices.SortedFunc(maps.Values(h.objects[k]), func(a, b Document) int {
		return cmp.Compare(h.order[key(text(a, "ID"))], h.order[key(text(b, "ID"))])
	})
}

func (h *HNS) prepare() {
	if h.objects != nil {
		return
	}
	h.objects = map[hns.Kind]map[string]Document{hns.Networks: {}, hns.Endpoints: {}, hns.LoadBalancers: {}}
	h.order, h.handles, h.calls = map[string]int{}, map[hns.Handle]opened{}, map[string]int{}
	if h.Version == (hns.Version{}) {
		h.Version = hns.Version{Major: 15, Minor: 5}
	}
}

// Do makes a call: its code, 0 for success, the handle that it opened, and a document, if it has one.
func (h *HNS) Do(c Call) (code hns.Code, handle hns.Handle, document string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.prepare()
	h.calls[c.Function]++
	h.total++
	c.ID = c.given()
	seen := c
	seen.ID = cmp.Or(c.ID, h.handles[c.Handle].id)
	if h.Fault != nil {
		code = h.Fault(seen)
	}
	if code == 0 {
		code, handle, document = h.do(c)
	}
	if code != 0 {
		seen.Failed = fmt.Sprintf("%#x", uint32(code))
	}
	if h.Trace != nil {
		h.Trace(seen)
	}
	return code, handle, document
}

func (h *HNS) do(c Call) (hns.Code, hns.Handle, string) {
	if c.Function == "HNSCall" {
		return 0, 0, h.old(c.Strings[0], c.Strings[1])
	}
	verb, kind := split(c.Function)
	at := h.objects[kind]
	switch verb {
	case "Enumerate":
		return h.enumerate(kind, c.Strings[0])
	case "Open":
		if at[c.ID] == nil {
			return notFound(kind), 0, ""
		}
		return 0, h.open(kind, c.ID), ""
	case "Close":
		if o, ok := h.handles[c.Handle]; !ok || o.kind != kind {
			return InvalidHandle, 0, ""
		}
		delete(h.handles, c.Handle)
		return 0, 0, ""
	case "Delete":
		if at[c.ID] == nil {
			return notFound(kind), 0, ""
		}
		h.deleting(kind, c.ID)
		delete(at, c.ID)
		return 0, 0, ""
	case "Create":
		return h.create(kind, c)
	case "Query", "Modify":
		o, ok := h.handles[c.Handle]
		if !ok || o.kind != kind {
			return InvalidHandle, 0, ""
		}
		d := at[o.id]
		if d == nil {
			return notFound(kind), 0, ""
		}
		if verb == "Query" {
			return 0, 0, marshal(d)
		}
		return h.modify(kind, d, c.Strings[0]), 0, ""
	}
	return hns.NotImplemented, 0, ""
}

func (h *HNS) enumerate(k hns.Kind, query string) (hns.Code, hns.Handle, string) {
	var q struct{ Filter string }
	filter := map[string]string{}
	if json.Unmarshal([]byte(query), &q) != nil || q.Filter != "" && json.Unmarshal([]byte(q.Filter), &filter) != nil {
		return InvalidJSON, 0, ""
	}
	ids := []string{}
	for _, d := range h.all(k) {
		differs := false
		for field, want := range filter {
			if field == "VirtualNetwork" { // as hnslib calls it
				field = "HostComputeNetwork"
			}
			differs = differs || !strings.EqualFold(text(d, field), want)
		}
		if !differs {
			ids = append(ids, strings.ToLower(text(d, "ID")))
		}
	}
	return 0, 0, marshal(ids)
}

func (h *HNS) create(k hns.Kind, c Call) (hns.Code, hns.Handle, string) {
	var d Document
	if json.Unmarshal([]byte(c.Strings[0]), &d) != nil {
		return InvalidJSON, 0, ""
	}
	id := cmp.Or(key(text(d, "ID")), c.ID, newID())
	if k == hns.Endpoints {
		o := h.handles[c.Handle]
		if o.kind != hns.Networks || h.objects[hns.Networks][o.id] == nil {
			return hns.NetworkNotFound, 0, ""
		}
		d["HostComputeNetwork"] = o.id
	}
	if h.objects[k][id] != nil {
		return hns.AlreadyExists, 0, ""
	}
	d["ID"] = id
	if code := h.check(k, d); code != 0 {
		return code, 0, ""
	}
	h.objects[k][id] = d
	h.order[id] = len(h.order)
	return 0, h.open(k, id), ""
}

func (h *HNS) open(k hns.Kind, id string) hns.Handle {
	h.last++
	h.handles[h.last] = opened{k, id}
	return h.last
}

func (h *HNS) violate(format string, a ...any) {
	h.violations = append(h.violations, fmt.Sprintf(format, a...))
}

// old answers the older interface.
func (h *HNS) old(method, path string) string {
	switch path = strings.TrimSuffix(path, "/"); {
	case method != "GET":
	case path == "/globals/version":
		return marshal(Document{"Success": true, "Output": h.Version})
	case path == "/policylists", path == "/networks", path == "/endpoints":
		return marshal(Document{"Success": true, "Output": []any{}})
	}
	return marshal(Document{"Success": false, "Error": "Element not found. "})
}

// split takes the name of a function apart: HcnQueryNetworkProperties is Query, Network.
func split(function string) (verb string, kind hns.Kind) {
	rest := strings.TrimSuffix(strings.TrimPrefix(function, "Hcn"), "Properties")
	for _, verb := range []string{"Enumerate", "Create", "Open", "Modify", "Query", "Delete", "Close"} {
		if kind, ok := strings.CutPrefix(rest, verb); ok {
			if verb == "Enumerate" {
				kind = strings.TrimSuffix(kind, "s")
			}
			return verb, hns.Kind(kind)
		}
	}
	return "", ""
}

func notFound(k hns.Kind) hns.Code {
	switch k {
	case hns.Networks:
		return hns.NetworkNotFound
	case hns.Endpoints:
		return hns.EndpointNotFound
	}
	return hns.NotFound
}

// key makes IDs comparable: their case differs with where they come from.
func key(id string) string { return strings.ToUpper(strings.Trim(id, "{}")) }

func newID() string {
	var g hns.GUID
	_, _ = rand.Read(g[:]) // it never fails
	g[6], g[8] = g[6]&0x0f|0x40, g[8]&0x3f|0x80
	return g.String()
}

func marshal(v any) string {
	b, _ := json.Marshal(v) // numbers, texts, lists
	return string(b)
}
