package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// refuseTest edits a good document, by replacing old with new, into one that
// must be refused because of some fields.
type refuseTest struct {
	name     string
	old, new string
	fields   []string // in order
	remedy   string   // part of the first remedy
	line     int      // of the first problem
}

func (tt refuseTest) run(t *testing.T, good string) {
	t.Helper()
	if tt.old != "" && !strings.Contains(good, tt.old) {
		t.Fatalf("the good document does not have %q", tt.old)
	}
	in := tt.new
	if tt.old != "" {
		in = strings.Replace(good, tt.old, tt.new, 1)
	}
	events, problems := Decode("a.yaml", []byte(in), "me")
	if len(events) > 0 {
		t.Errorf("it was taken over: %v", events)
	}
	var fields []string
	for _, p := range problems {
		fields = append(fields, p.Field)
		if !p.Refused || p.Document != 1 || p.Kind == "" || p.Reason == "" || p.Remedy == "" {
			t.Errorf("a problem does not say what, why and what to do: %+v", p)
		}
	}
	if diff := cmp.Diff(tt.fields, fields); diff != "" {
		t.Fatalf("fields (-want +got)\n%s%v", diff, problems)
	}
	if tt.remedy != "" && !strings.Contains(problems[0].Remedy, tt.remedy) {
		t.Errorf("the remedy is %q, want %q", problems[0].Remedy, tt.remedy)
	}
	if tt.line != 0 && problems[0].Line != tt.line {
		t.Errorf("the line is %d, want %d", problems[0].Line, tt.line)
	}
}

const oneField = "" // the problem is about the document as a whole

func TestDocumentsThatCannotBeUnderstood(t *testing.T) {
	for _, tt := range []refuseTest{
		{name: "broken YAML", new: "a: [1\nb: {", fields: []string{oneField}},
		{name: "tabs", new: "a:\n\t- b\n", fields: []string{oneField}, line: 2},
		{name: "a scalar", new: "hello", fields: []string{oneField}},
		{name: "a sequence", new: "- a\n- b", fields: []string{oneField}},
		{name: "no kind", new: "apiVersion: v1\nmetadata: {name: a}", fields: []string{"kind"}},
		{name: "no apiVersion", new: "kind: Service\nmetadata: {name: a}", fields: []string{"apiVersion"}},
		{name: "a kind that is a number", new: "apiVersion: v1\nkind: 5", fields: []string{"kind"}},
		{name: "an alias of itself", new: "a: &a [*a]", fields: []string{oneField}},
		{name: "an unknown alias", new: "a: *b", fields: []string{oneField}},
		{name: "a mapping for a key", new: "{a: b}: c", fields: []string{oneField}},
		{name: "not a number", new: "a: .nan", fields: []string{oneField}},
		{name: "merging a scalar", new: "<<: 5", fields: []string{oneField}},
		{name: "aliases that explode", new: bomb("[%s]", "*", ","), fields: []string{oneField}},
		{name: "merges that explode", new: bomb("{<<: [%s]}", "*", ","), fields: []string{oneField}},
		{name: "nested too deeply", new: strings.Repeat("[", 2000) + strings.Repeat("]", 2000), fields: []string{oneField}},
		{name: "two mappings in braces", new: "{apiVersion: v1, kind: ConfigMap}\n{apiVersion: v1, kind: ConfigMap}", fields: []string{oneField}},
		{name: "a directive in the middle", new: "apiVersion: v1\nkind: ConfigMap\n%YAML 1.1\n", fields: []string{oneField}},
		{name: "a repeated field among others", old: "  - port: 80", new: "  - {port: 80, <<: {port: 81, name: a}}\n  - {port: 81, name: a, port: 82}", fields: []string{"spec.ports[1].port"}, line: 8},
		{name: "an old version", old: "apiVersion: v1", new: "apiVersion: v1beta3", fields: []string{"apiVersion"}, remedy: "apiVersion: v1", line: 1},
		{name: "a group of Kubernetes that has no Service", old: "apiVersion: v1", new: "apiVersion: apps/v1", fields: []string{"apiVersion"}},
		{name: "an old slice", new: "{apiVersion: discovery.k8s.io/v1beta1, kind: EndpointSlice, metadata: {name: a}}", fields: []string{"apiVersion"}, remedy: "discovery.k8s.io/v1"},
		{name: "a typed list of an old version", new: "{apiVersion: v1beta3, kind: ServiceList, items: []}", fields: []string{"apiVersion"}},
		{name: "a list in a list", new: "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List, items: []}]}", fields: []string{"items[0].kind"}},
		{name: "items that are no list", new: "{apiVersion: v1, kind: List, items: 5}", fields: []string{"items"}},
		{name: "unknown field at the top", old: "spec:", new: "spek: {}\nspec:", fields: []string{"spek"}, line: 4},
		{name: "unknown field below", old: "  - port: 80", new: "  - port: 80\n    prot: TCP", fields: []string{"spec.ports[0].prot"}, line: 8},
		{name: "a field in wrong case", old: "clusterIP:", new: "clusterIp:", fields: []string{"spec.clusterIp"}},
		{name: "a repeated field", old: "  clusterIP:", new: "  clusterIP: 10.96.0.9\n  clusterIP:", fields: []string{"spec.clusterIP"}, remedy: "keep one", line: 6},
		{name: "a repeated label", old: "{name: web}", new: "{name: web, labels: {a.b: one, a.b: two}}", fields: []string{"metadata.labels.a.b"}},
		{name: "a string for a number", old: "port: 80", new: "port: eighty", fields: []string{"spec.ports[0].port"}},
		{name: "a number too large", old: "port: 80", new: "port: 99999999999", fields: []string{"spec.ports[0].port"}},
		{name: "a word of YAML 1.1 for a name", old: "{name: web}", new: "{name: yes}", fields: []string{"metadata.name"}, remedy: "quotes"},
		{name: "a bad time", old: "{name: web}", new: "{name: web, creationTimestamp: noon}", fields: []string{"metadata.creationTimestamp"}},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, web) })
	}
}

// bomb is a document whose anchors refer to the one above twice, many times.
func bomb(format, prefix, separator string) string {
	var b strings.Builder
	b.WriteString("a0: &a0 {x: y}\n")
	last := "a0"
	for i := range 40 {
		name := "a" + string(rune('A'+i%26)) + strings.Repeat("x", i/26)
		b.WriteString(name + ": &" + name + " " + strings.Replace(format, "%s", prefix+last+separator+prefix+last, 1) + "\n")
		last = name
	}
	return b.String()
}

func TestServicesThatAreRefused(t *testing.T) {
	port := "  - port: 80\n"
	two := func(a, b string) string { return "  - {" + a + "}\n  - {" + b + "}\n" }
	ip := "clusterIP: 10.96.0.1"
	for _, tt := range []refuseTest{
		{name: "no name", old: "{name: web}", new: "{}", fields: []string{"metadata.name"}},
		{name: "a bad name", old: "{name: web}", new: "{name: Web_1}", fields: []string{"metadata.name"}},
		{name: "a bad namespace", old: "{name: web}", new: "{name: web, namespace: a.b}", fields: []string{"metadata.namespace"}},
		{name: "an unknown type", old: "spec:", new: "spec:\n  type: Magic", fields: []string{"spec.type"}},
		{name: "no ClusterIP", old: "  " + ip + "\n", new: "", fields: []string{"spec.clusterIP"}, remedy: "set spec.clusterIP", line: 4},
		{name: "a malformed ClusterIP", old: ip, new: "clusterIP: 10.96.0.256", fields: []string{"spec.clusterIP"}, line: 5},
		{name: "a zone", old: ip, new: "clusterIP: fd00::1%eth0", fields: []string{"spec.clusterIP"}},
		{name: "a loopback ClusterIP", old: ip, new: "clusterIP: 127.0.0.1", fields: []string{"spec.clusterIP"}},
		{name: "two of one family", old: ip, new: "clusterIPs: [10.96.0.1, 10.96.0.2]", fields: []string{"spec.clusterIPs[1]"}},
		{name: "three ClusterIPs", old: ip, new: "clusterIPs: [10.96.0.1, fd00::1, fd00::2]", fields: []string{"spec.clusterIPs"}},
		{name: "fields that disagree", old: ip, new: ip + "\n  clusterIPs: [10.96.0.2]", fields: []string{"spec.clusterIP"}},
		{name: "None and an address", old: ip, new: "clusterIPs: [None, 10.96.0.2]", fields: []string{"spec.clusterIPs"}},
		{name: "another family", old: ip, new: ip + "\n  ipFamilies: [IPv6]", fields: []string{"spec.ipFamilies[0]"}},
		{name: "an unknown family", old: ip, new: ip + "\n  ipFamilies: [IPX]", fields: []string{"spec.ipFamilies[0]"}},
		{name: "a family without an address", old: ip, new: ip + "\n  ipFamilies: [IPv4, IPv6]", fields: []string{"spec.ipFamilies[1]"}, remedy: "spec.clusterIPs"},
		{name: "dual stack with one address", old: ip, new: ip + "\n  ipFamilyPolicy: RequireDualStack", fields: []string{"spec.ipFamilyPolicy"}},
		{name: "single stack with two", old: ip, new: "clusterIPs: [10.96.0.1, fd00::1]\n  ipFamilyPolicy: SingleStack", fields: []string{"spec.ipFamilyPolicy"}},
		{name: "no ports", old: "  ports:\n" + port, new: "", fields: []string{"spec.ports"}},
		{name: "port 0", old: "port: 80", new: "port: 0", fields: []string{"spec.ports[0].port"}, line: 7},
		{name: "a port too high", old: "port: 80", new: "port: 65536", fields: []string{"spec.ports[0].port"}},
		{name: "an unknown protocol", old: port, new: port + "    protocol: tcp\n", fields: []string{"spec.ports[0].protocol"}},
		{name: "ports without names", old: port, new: two("port: 1", "port: 2, name: b"), fields: []string{"spec.ports[0].name"}},
		{name: "a bad port name", old: port, new: port + "    name: a.b\n", fields: []string{"spec.ports[0].name"}},
		{name: "a repeated port name", old: port, new: two("port: 1, name: a", "port: 2, name: a"), fields: []string{"spec.ports[1].name"}},
		{name: "a repeated port", old: port, new: two("port: 1, name: a", "port: 1, name: b, protocol: TCP"), fields: []string{"spec.ports[1].port"}},
		{name: "a bad target port", old: port, new: port + "    targetPort: 70000\n", fields: []string{"spec.ports[0].targetPort"}},
		{name: "a bad target port name", old: port, new: port + "    targetPort: UPPER\n", fields: []string{"spec.ports[0].targetPort"}},
		{name: "a node port on a ClusterIP Service", old: port, new: port + "    nodePort: 30000\n", fields: []string{"spec.ports[0].nodePort"}},
		{name: "a node port too high", old: port, new: port + "    nodePort: 65536\n  type: NodePort\n", fields: []string{"spec.ports[0].nodePort"}},
		{name: "a health check port too high", old: port, new: port + "  healthCheckNodePort: 70000\n", fields: []string{"spec.healthCheckNodePort"}},
		{
			name: "a repeated node port", old: port, fields: []string{"spec.ports[1].nodePort"},
			new: two("port: 1, name: a, nodePort: 30000", "port: 2, name: b, nodePort: 30000") + "  type: NodePort\n",
		},
		{name: "malformed and special external IPs", old: ip, new: ip + "\n  externalIPs: [x, 127.0.0.1, 169.254.0.1, 0.0.0.0, 'ff02::1']", fields: []string{
			"spec.externalIPs[0]", "spec.externalIPs[1]", "spec.externalIPs[2]", "spec.externalIPs[3]", "spec.externalIPs[4]",
		}},
		{name: "an unknown internal policy", old: ip, new: ip + "\n  internalTrafficPolicy: Near", fields: []string{"spec.internalTrafficPolicy"}},
		{name: "an unknown external policy", old: ip, new: ip + "\n  externalTrafficPolicy: Near", fields: []string{"spec.externalTrafficPolicy"}},
		{name: "an unknown affinity", old: ip, new: ip + "\n  sessionAffinity: Cookie", fields: []string{"spec.sessionAffinity"}},
		{name: "a timeout without affinity", old: ip, new: ip + "\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 5}}", fields: []string{"spec.sessionAffinityConfig"}},
		{
			name: "a timeout out of range", old: ip, fields: []string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds"},
			new: ip + "\n  sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}",
		},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, web) })
	}
}

func TestSlicesThatAreRefused(t *testing.T) {
	endpoint := "- addresses: [10.0.0.1]"
	for _, tt := range []refuseTest{
		{name: "no address type", old: "addressType: IPv4\n", new: "", fields: []string{"addressType"}},
		{name: "an unknown address type", old: "addressType: IPv4", new: "addressType: IPv5", fields: []string{"addressType"}},
		{name: "a bad name", old: "name: web-1", new: "name: -web", fields: []string{"metadata.name"}},
		{name: "a malformed address", old: endpoint, new: "- addresses: [10.0.0]", fields: []string{"endpoints[0].addresses[0]"}, line: 11},
		{name: "another family", old: endpoint, new: endpoint + "\n- addresses: ['fd00::1']", fields: []string{"endpoints[1].addresses[0]"}, line: 12},
		{name: "no address", old: endpoint, new: "- addresses: []", fields: []string{"endpoints[0].addresses"}},
		{name: "a bad node name", old: endpoint, new: endpoint + "\n  nodeName: A_B", fields: []string{"endpoints[0].nodeName"}},
		{name: "port 0", old: "port: 8080", new: "port: 0", fields: []string{"ports[0].port"}},
		{name: "an unknown protocol", old: "port: 8080", new: "port: 8080\n  protocol: X", fields: []string{"ports[0].protocol"}},
		{name: "a bad port name", old: "port: 8080", new: "port: 8080\n  name: _", fields: []string{"ports[0].name"}},
		{name: "ports without names", old: "- port: 8080", new: "- port: 8080\n- port: 8081", fields: []string{"ports[1].name"}},
		{name: "a list with a bad item", new: "{apiVersion: v1, kind: List, items: [{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: a}}]}",
			fields: []string{"items[0].addressType"}},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, webSlice) })
	}
}

func TestOtherObjectsThatAreRefused(t *testing.T) {
	subset := func(s string) string {
		return "{apiVersion: v1, kind: Endpoints, metadata: {name: web}, subsets: [{" + s + "}]}"
	}
	cidr := func(s string) string {
		return "{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: a}, spec: {cidrs: [" + s + "]}}"
	}
	for _, tt := range []refuseTest{
		{name: "a malformed address", new: subset("addresses: [{ip: x}], notReadyAddresses: [{ip: ''}]"),
			fields: []string{"subsets[0].addresses[0].ip", "subsets[0].notReadyAddresses[0].ip"}},
		{name: "bad ports", new: subset("ports: [{port: 1}, {port: 0, name: A, protocol: X}]"),
			fields: []string{"subsets[0].ports[0].name", "subsets[0].ports[1].name", "subsets[0].ports[1].port", "subsets[0].ports[1].protocol"}},
		{name: "no CIDR", new: cidr(""), fields: []string{"spec.cidrs"}},
		{name: "a malformed CIDR", new: cidr("10.96.0.0/40"), fields: []string{"spec.cidrs[0]"}},
		{name: "two CIDRs of one family", new: cidr("10.96.0.0/16, 10.97.0.0/16"), fields: []string{"spec.cidrs[1]"}},
		{name: "a bad Node", new: "{apiVersion: v1, kind: Node, metadata: {name: me}, spec: {podCIDRs: [x]}, status: {addresses: [{type: InternalIP, address: z}]}}",
			fields: []string{"status.addresses[0].address", "spec.podCIDRs[0]"}},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, "") })
	}
}

// TestManyProblems has more than are listed: what is left out does not hide
// what is refused.
func TestManyProblems(t *testing.T) {
	slice := webSlice + strings.Repeat("- addresses: [127.0.0.1]\n", 100)
	if events, problems := Decode("a.yaml", []byte(slice), ""); len(events) != 1 || len(problems) != 17 || problems[16].Refused {
		t.Errorf("got %v and %v", events, problems)
	}
	if events, problems := Decode("a.yaml", []byte(slice+"- addresses: [x]\n"), ""); len(events) != 0 || len(problems) != 17 || !problems[16].Refused {
		t.Errorf("got %v and %v", events, problems)
	}
	ranges := "  type: LoadBalancer\n  loadBalancerSourceRanges: [" + strings.Repeat("x, ", 100) + "]\n"
	if events, problems := Decode("a.yaml", []byte(web+ranges), ""); len(events) != 1 || len(problems) != 17 || problems[16].Refused {
		t.Errorf("got %v and %v", events, problems)
	}
}

func TestBadDocumentHarmsOnlyItself(t *testing.T) {
	tests := []struct{ name, file, in, want string }{
		{"YAML", "a.yaml", "kind: [\n---\n" + web, "a.yaml: document 1, line"},
		{"YAML, later", "a.yaml", web + "---\n# comment\n---\nkind: [\n", "a.yaml: document 2, line"},
		{"JSON", "a.json", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":80}]}}` +
			"\n{\n\"a\": }", "a.json: document 2, line 3"},
		{"a repeated field in an item of a list", "a.yaml", "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(web, "\n", "\n  ") +
			"\n- {apiVersion: v1, kind: Service, kind: Service, metadata: {name: b}, spec: {clusterIP: 10.96.0.2, ports: [{port: 80}]}}\n", "a.yaml: document 1, line 12: Service default/b: items[1].kind"},
		{"an item of a list", "a.yaml", "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(web, "\n", "\n  ") + "\n- apiVersion: v1\n", "a.yaml: document 1, line"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			events, problems := Decode(tt.file, []byte(tt.in), "")
			if len(events) != 1 {
				t.Errorf("the good document was not taken over: %v", events)
			}
			if len(problems) != 1 || !strings.HasPrefix(problems[0].String(), tt.want) {
				t.Errorf("got %v, want %s…", problems, tt.want)
			}
		})
	}
}

func TestFilesThatAreNotText(t *testing.T) {
	for name, in := range map[string]string{"NUL bytes": "\x7fELF\x00", "not UTF-8": "a: \xff\xfe"} {
		t.Run(name, func(t *testing.T) {
			events, problems := Decode("a.yaml", []byte(in), "")
			if len(events) > 0 || len(problems) != 1 || !strings.Contains(problems[0].Reason, "not a text file") {
				t.Errorf("got %v and %v", events, problems)
			}
		})
	}
}
