package manifest

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/internal/model"
	"sluice/internal/source"
)

// values compares model values but for the ages of Services.
var values = cmp.Options{
	agedValues,
	cmpopts.IgnoreFields(model.Service{}, "Created"),
}

var agedValues = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

const web = `apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: 10.96.0.1
  ports:
  - port: 80
`

const webSlice = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  labels:
    kubernetes.io/service-name: web
addressType: IPv4
ports:
- port: 8080
endpoints:
- addresses: [10.0.0.1]
`

func setWeb(clusterIP string) model.Event {
	return model.SetService{Service: &model.Service{
		Name:       model.Name{Namespace: "default", Name: "web"},
		ClusterIPs: []netip.Addr{netip.MustParseAddr(clusterIP)},
		Ports:      []model.ServicePort{{Protocol: model.TCP, Port: 80}},
	}}
}

func setWebSlice() model.Event {
	return model.SetSlice{Slice: &model.Slice{
		Name:    model.Name{Namespace: "default", Name: "web-1"},
		Service: "web",
		Family:  model.IPv4,
		Ports:   []model.SlicePort{{Protocol: model.TCP, Port: 8080}},
		Endpoints: []model.Endpoint{
			{Addr: netip.MustParseAddr("10.0.0.1"), Conditions: model.Ready | model.Serving},
		},
	}}
}

// Decode returns what the content of one file leads to, without looking for objects
// that are there twice.
func Decode(file string, data []byte, nodeName string) ([]model.Event, []Problem) {
	d := decodeFile(file, data, source.Proxy{NodeName: nodeName}, nil)
	var events []model.Event
	for _, o := range d.objects {
		events = append(events, o.events...)
	}
	return events, d.problems
}

type decodeTest struct {
	name, file, in string
	want           []model.Event
}

func (tt decodeTest) run(t *testing.T) {
	file := tt.file
	if file == "" {
		file = "a.yaml"
	}
	got, problems := Decode(file, []byte(tt.in), "me")
	for _, p := range problems {
		t.Errorf("unexpected problem: %v", p)
	}
	if diff := cmp.Diff(tt.want, got, values); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestManifestsAreRead(t *testing.T) {
	both := []model.Event{setWeb("10.96.0.1"), setWebSlice()}
	item := func(s string) string {
		return "- " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ") + "\n"
	}
	webJSON := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":80}]}}`
	tests := []decodeTest{
		{name: "an empty file"},
		{name: "only comments and empty documents", in: "# nothing\n---\n---\n# here\n--- # or here\n...\n"},
		{name: "an empty JSON file", file: "a.json", in: " \n"},
		{name: "several documents", in: web + "---\n" + webSlice, want: both},
		{name: "documents with an end", in: web + "...\n" + webSlice + "...\n", want: both},
		{name: "separators with comments, and Windows line ends", in: strings.ReplaceAll("--- # one\n"+web+"--- # two\n"+webSlice, "\n", "\r\n"), want: both},
		{name: "directives and a byte order mark", in: "\ufeff%YAML 1.1\n---\n" + web + "...\n%YAML 1.1\n---\n" + webSlice, want: both},
		{name: "a List", in: "apiVersion: v1\nkind: List\nitems:\n" + item(web) + item(webSlice), want: both},
		{
			name: "a typed list, whose items need no kind",
			in:   "apiVersion: v1\nkind: ServiceList\nmetadata: {resourceVersion: \"5\"}\nitems:\n" + item(strings.SplitN(web, "\n", 3)[2]),
			want: both[:1],
		},
		{
			name: "keys merged from elsewhere, and overridden",
			in:   "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  <<: &base {clusterIP: 10.96.0.9, ports: [&p {port: 80}]}\n  clusterIP: 10.96.0.1\n",
			want: both[:1],
		},
		{name: "braces", in: "# in braces\n" + strings.ReplaceAll(webJSON, "\"", "'") + "# and no more", want: both[:1]},
		{name: "JSON in a YAML file", in: webJSON + "\n---\n" + webSlice, want: both},
		{name: "JSON values one after the other", file: "a.json", in: webJSON + webJSON, want: []model.Event{both[0], both[0]}},
		{name: "other kinds are skipped", in: "apiVersion: apps/v1\nkind: Deployment\nspec: {anything: goes}\n---\n" + web, want: both[:1]},
		{name: "a Service of another API group", in: "apiVersion: serving.knative.dev/v1\nkind: Service\nspec: {template: {}}\n"},
		{name: "an ExternalName Service", in: "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {type: ExternalName, externalName: x.example}}"},
		{name: "a headless Service", in: "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: None}}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, tt.run)
	}
}

func TestKindsBesideServicesAndSlices(t *testing.T) {
	tests := []decodeTest{
		{
			name: "Endpoints",
			in:   "{apiVersion: v1, kind: Endpoints, metadata: {name: web}, subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 8080}]}]}",
			want: []model.Event{model.SetSlice{Slice: &model.Slice{
				Name: model.Name{Namespace: "default", Name: "endpoints:web:0:IPv4"}, Service: "web", Family: model.IPv4,
				Ports:     []model.SlicePort{{Protocol: model.TCP, Port: 8080}},
				Endpoints: []model.Endpoint{{Addr: netip.MustParseAddr("10.0.0.1"), Conditions: model.Ready | model.Serving}},
			}}},
		},
		{
			name: "only this node's Node",
			in: "{apiVersion: v1, kind: Node, metadata: {name: other}}\n---\n" +
				"{apiVersion: v1, kind: Node, metadata: {name: me, labels: {topology.kubernetes.io/zone: a}}, spec: {podCIDRs: [10.1.0.0/24]}," +
				" status: {addresses: [{type: InternalIP, address: 10.9.0.1}]}}",
			want: []model.Event{model.SetNode{Node: &model.Node{
				Name: "me", Zone: "a", IPs: []netip.Addr{netip.MustParseAddr("10.9.0.1")},
				PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")},
			}}},
		},
		{
			name: "ServiceCIDRs of both versions",
			in: "{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: a}, spec: {cidrs: [10.96.0.0/16]}}\n---\n" +
				"{apiVersion: networking.k8s.io/v1beta1, kind: ServiceCIDR, metadata: {name: b}, spec: {cidrs: [fd00::/108]}}",
			want: []model.Event{
				model.SetServiceCIDR{ServiceCIDR: &model.ServiceCIDR{Name: "a", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}},
				model.SetServiceCIDR{ServiceCIDR: &model.ServiceCIDR{Name: "b", Prefixes: []netip.Prefix{netip.MustParsePrefix("fd00::/108")}}},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, tt.run)
	}
}

func TestProblemsHaveTheirPlace(t *testing.T) {
	in := "# a load balancer\n" + strings.Replace(web, "spec:\n", "spec:\n  type: LoadBalancer\n  loadBalancerSourceRanges:\n  - 10.0.0.0/8\n  - 10.0.0.0/99\n", 1)
	events, problems := Decode("a.yaml", []byte(in), "")
	svc, ok := events[0].(model.SetService)
	if !ok || !svc.Filtered || len(svc.SourceRanges) != 1 {
		t.Errorf("a malformed range must be left out and still filter: %+v", events)
	}
	if len(problems) != 1 {
		t.Fatalf("want one problem, got %v", problems)
	}
	want := `a.yaml: document 1, line 9: Service default/web: spec.loadBalancerSourceRanges[1]: ` +
		`"10.0.0.0/99" is not a CIDR: prefix length out of range (write a CIDR such as 192.0.2.0/24)`
	if diff := cmp.Diff(want, problems[0].String()); diff != "" || problems[0].Refused {
		t.Errorf("refused: %v, (-want +got)\n%s", problems[0].Refused, diff)
	}
}

func TestMissingNodePortKeepsClusterIP(t *testing.T) {
	events, problems := Decode("a.yaml", []byte(strings.Replace(web, "spec:\n", "spec:\n  type: NodePort\n", 1)), "")
	if len(events) != 1 || len(problems) != 1 || problems[0].Refused || problems[0].Field != "spec.ports[0].nodePort" {
		t.Errorf("got %d events and problems %v", len(events), problems)
	}
}

func TestLargeObjects(t *testing.T) {
	var b strings.Builder
	b.WriteString(strings.TrimSuffix(web, "  - port: 80\n"))
	for i := range 1000 {
		fmt.Fprintf(&b, "  - {name: p%d, port: %d}\n", i, 1000+i)
	}
	b.WriteString("---\n" + strings.TrimSuffix(webSlice, "- addresses: [10.0.0.1]\n"))
	for i := range 1 << 16 {
		fmt.Fprintf(&b, "- addresses: [10.1.%d.%d]\n", i>>8, i&255)
	}
	events, problems := Decode("a.yaml", []byte(b.String()), "")
	if len(problems) > 0 {
		t.Fatalf("unexpected problems: %v", problems)
	}
	if n := len(events[0].(model.SetService).Ports); n != 1000 {
		t.Errorf("%d of 1000 ports", n)
	}
	if n := len(events[1].(model.SetSlice).Endpoints); n != 1<<16 {
		t.Errorf("%d of 65536 endpoints", n)
	}
}

// Whatever text a manifest has where, problems of it are short.
func TestLongTextsAreCut(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for name, text := range map[string]string{
		"annotation":  "apiVersion: v1\nkind: Service\nmetadata: {name: a, annotations: {sluice/algorithm: " + long + "}}\nspec: {clusterIP: 10.0.0.1, ports: [{port: 80}]}\n",
		"name":        "apiVersion: v1\nkind: Service\nmetadata: {name: " + long + "}\nspec: {clusterIP: 10.0.0.1, ports: [{port: 80}]}\n",
		"value":       "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterIP: " + long + ", type: " + long + ", ports: [{port: 80, protocol: " + long + "}]}\n",
		"field":       "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {" + long + ": 1}\n",
		"version":     "apiVersion: v1x" + long + "\nkind: Service\nmetadata: {name: a}\n",
		"wrong type":  "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: " + long + "}\n",
		"no YAML":     "a: [" + long + "\n" + long + "\n",
		"indentation": "a: 1\n  " + long + ": 2\n" + long + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			problems := decodeFile("f.yaml", []byte(text), source.Proxy{}, nil).problems
			if len(problems) == 0 {
				t.Error("there is no problem")
			}
			for _, p := range problems {
				if len(p.String()) > 1500 {
					t.Errorf("it says %d characters: %.300s", len(p.String()), p)
				}
			}
		})
	}
}
