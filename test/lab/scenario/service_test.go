//go:build linux

package scenario

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// lets are the names that the tests of the service step use.
const lets = "let web 10.96.0.1 fd00:10:96::1\nlet out 198.18.0.1 2001:db8:18::1\nlet lb 198.18.0.2 2001:db8:18::2\n"

func TestServiceIsWritten(t *testing.T) {
	const head = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIP: 10.96.0.1
  clusterIPs: [10.96.0.1, "fd00:10:96::1"]
  ipFamilies: [IPv4, IPv6]
`
	tests := []struct{ step, want string }{
		{"service web ClusterIP 80", head + `
  type: ClusterIP
  ports:
  - {name: tcp, protocol: TCP, port: 80, targetPort: 80}
  - {name: udp, protocol: UDP, port: 80, targetPort: 80}
  - {name: sctp, protocol: SCTP, port: 80, targetPort: 80}
status: {loadBalancer: {}}
`},
		{"service web NodePort 80:8080/tcp 53:5353/tcp,udp nodePort=30080,30053", head + `
  type: NodePort
  ports:
  - {name: tcp-80, protocol: TCP, port: 80, targetPort: 8080, nodePort: 30080}
  - {name: tcp-53, protocol: TCP, port: 53, targetPort: 5353, nodePort: 30053}
  - {name: udp-53, protocol: UDP, port: 53, targetPort: 5353, nodePort: 30053}
status: {loadBalancer: {}}
`},
		{"service web LoadBalancer 80/tcp externalIPs=out,lb ingress=lb externalTrafficPolicy=Local internalTrafficPolicy=Cluster", head + `
  type: LoadBalancer
  externalIPs: [198.18.0.1, "2001:db8:18::1", 198.18.0.2, "2001:db8:18::2"]
  externalTrafficPolicy: Local
  internalTrafficPolicy: Cluster
  ports:
  - {name: tcp, protocol: TCP, port: 80, targetPort: 80}
status: {loadBalancer: {ingress: [{ip: 198.18.0.2}, {ip: "2001:db8:18::2"}]}}
`},
	}
	for _, test := range tests {
		t.Run(test.step, func(t *testing.T) {
			s, err := Parse("x", []byte("# semantics: x\n"+lets+test.step+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			r := &runner{names: map[string][2]netip.Addr{}}
			for _, st := range s.steps[:3] {
				if err := st.action.run(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			written, err := yaml.Marshal(s.steps[3].action.(*service).object(r.names))
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			if err := yaml.Unmarshal(written, &got); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(test.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestServiceErrors(t *testing.T) {
	for step, want := range map[string]string{
		"service web":                                              "want NAME TYPE PORTS",
		"service web ExternalName 80":                              `unknown type "ExternalName"`,
		"service mail ClusterIP 80":                                `"mail" has no addresses: give them by let`,
		"service web ClusterIP nodePort=1":                         "want a port",
		"service web ClusterIP 0":                                  `"0" is not a port`,
		"service web ClusterIP 80:http":                            `"http" is not a port`,
		"service web ClusterIP 80/icmp":                            `"icmp" is not a list of tcp, udp and sctp`,
		"service web ClusterIP 80 nodePort=30080":                  "a ClusterIP Service has no nodePort",
		"service web NodePort 80":                                  "needs nodePort=",
		"service web NodePort 80 81 nodePort=30080":                "want a nodePort for each port, not 1",
		"service web NodePort 80 nodePort=30080,30081":             "want a nodePort for each port, not 2",
		"service web NodePort 80 nodePort=x":                       `"x" is not a port`,
		"service web NodePort 80 nodePort=30080 ingress=lb":        "a NodePort Service has no ingress",
		"service web ClusterIP 80 externalIPs=nowhere":             `"nowhere" has no addresses`,
		"service web ClusterIP 80 externalTrafficPolicy=Near":      "is Cluster or Local",
		"service web ClusterIP 80 endpoints=podd1":                 `no host "podd1"`,
		"service web ClusterIP 80 endpoints=pod1(terminating)":     "endpoints with remarks need a step of their own",
		"service web ClusterIP 80 endpoints=":                      "want FIELD=VALUE",
		"service web ClusterIP 80 sessionAffinity=ClientIP":        `unknown field "sessionAffinity": write the Service as YAML`,
		"service web ClusterIP 80 endpoints=pod1 81":               `want FIELD=VALUE, not "81"`,
		"service web LoadBalancer 80 ingress=lb,web endpoints=pod": `no host "pod"`,
	} {
		t.Run(step, func(t *testing.T) {
			_, err := Parse("x", []byte("# semantics: x\n"+lets+step+"\n"))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want one with %q", err, want)
			}
		})
	}
}
