package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/internal/cli/check"
	"sluice/test/cluster/apiserver"
	"sluice/test/cluster/process"
	"sluice/test/lab"
)

// A node migrates from upstream's kube-proxy to ours and back. No connection is
// lost, each of them is effective while it runs, and nothing of upstream's is left
// while ours runs.
func TestFromUpstreamAndBack(t *testing.T) {
	binaries, err := apiserver.Build(t.Context(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	own, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ upstream, own string }{
		{"iptables", "iptables"},
		{"iptables", "nftables"},
		{"nftables", "nftables"},
	} {
		t.Run(tt.upstream+" to "+tt.own, func(t *testing.T) {
			s := startWithoutProxy(t)
			web := s.create("web", "pod1")
			s.createCrowd()
			s.proxy = s.startMode(binaries.KubeProxy, tt.upstream)
			s.expect("upstream's", answered(clusterFlows(web), "pod1"))
			stop := s.traffic(clusterFlows(web))
			s.checkBefore(own, tt.upstream, tt.own)

			s.replace(own, tt.own)
			s.setPods("web", "pod1", "pod3")
			s.expectAnswersOf(web, "pod3")
			s.expectNothingOf(tt.upstream)

			s.replace(binaries.KubeProxy, tt.upstream)
			s.expectRulesOf(tt.upstream, web)
			if tt.own == "nftables" { // as docs/migrate.md says
				s.onNode("nft delete table ip sluice; nft delete table ip6 sluice")
			}
			s.setPods("web", "pod1", "remote1")
			s.expectAnswersOf(web, "remote1")
			stop()
		})
	}
}

// checkBefore asks what to do before the switch: it recognises the mode of upstream's rules,
// knows the Services of the cluster and what is special about them, and changes nothing.
func (s *site) checkBefore(own, upstream, mode string) {
	s.Helper()
	kubeconfig, err := s.server.Kubeconfig(apiserver.KubeProxy)
	if err != nil {
		s.Fatal(err)
	}
	before := s.onNode(list[upstream])
	out := s.onNode(fmt.Sprintf("%s check --kubeconfig %s --node node1 --mode %s -o json || [ $? = 1 ]", own, kubeconfig, mode))
	var report check.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		s.Fatalf("%v in\n%s", err, out)
	}
	if !slices.Equal(report.InPlace, []string{upstream}) || report.Mode != mode || report.Services < 21 {
		s.Errorf("check does not see upstream's %s mode and all Services:\n%s", upstream, out)
	}
	if !strings.Contains(out, "default/other0") { // its source ranges are of one family only
		s.Errorf("check does not mention the Service with source ranges of one family:\n%s", out)
	}
	if after := s.onNode(list[upstream]); ruleLines(after) != ruleLines(before) {
		s.Errorf("check changed the rules from\n%s\nto\n%s", before, after)
	}
}

// counts are what changes while packets flow, and comments with the time.
var counts = regexp.MustCompile(`\[\d+:\d+\]|packets \d+ bytes \d+|expires \w+|(?m:^#.*$)`)

func ruleLines(rules string) string { return counts.ReplaceAllString(rules, "") }

// createCrowd creates Services that need all kinds of rules, and so many that
// finding one takes more than one step.
func (s *site) createCrowd() {
	s.Helper()
	for i := range 20 {
		name := fmt.Sprint("other", i)
		service := s.create(name, "pod1", "pod2", "pod3", "remote1", "remote2")
		service.Spec.Type = corev1.ServiceTypeLoadBalancer
		service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		service.Spec.ExternalIPs = []string{fmt.Sprintf("198.18.1.%d", i), fmt.Sprintf("2001:db8:18:1::%x", i)}
		service.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		service, err := s.services().Update(s.Context(), service, metav1.UpdateOptions{})
		if err != nil {
			s.Fatal(err)
		}
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
			{IP: fmt.Sprintf("198.18.2.%d", i)}, {IP: fmt.Sprintf("2001:db8:18:2::%x", i)}}
		if _, err := s.services().UpdateStatus(s.Context(), service, metav1.UpdateOptions{}); err != nil {
			s.Fatal(err)
		}
	}
}

// startMode starts a kube-proxy, ours or upstream's, in a mode.
func (s *site) startMode(path, mode string) *process.Process {
	s.Helper()
	kubeconfig, err := s.server.Kubeconfig(apiserver.KubeProxy)
	if err != nil {
		s.Fatal(err)
	}
	return s.run(path, "--kubeconfig", kubeconfig, "--hostname-override", "node1", "-v", "2", "--proxy-mode", mode,
		"--cluster-cidr", lab.ClusterCIDRs[0].String()+","+lab.ClusterCIDRs[1].String(),
		// They belong to the machine, not to the namespace.
		"--conntrack-max-per-core", "0", "--conntrack-tcp-timeout-established", "0s", "--conntrack-tcp-timeout-close-wait", "0s")
}

// replace stops the running proxy and starts another.
func (s *site) replace(path, mode string) {
	s.Helper()
	if err := s.proxy.Kill(); err != nil {
		s.Fatal(err)
	}
	s.proxy = s.startMode(path, mode)
}

// expectAnswersOf waits until a pod answers for a Service, by all protocols and in
// both families. Others may too.
func (s *site) expectAnswersOf(service *corev1.Service, pod string) {
	s.Helper()
	for _, flow := range clusterFlows(service) {
		s.expect("a new endpoint", answered([]lab.Flow{flow}, pod))
	}
}

// onNode runs a shell command on the node and returns its output.
func (s *site) onNode(command string) string {
	s.Helper()
	out, err := s.host("node1").Run(s.Context(), lab.Command{Args: []string{"sh", "-c", command}})
	if err != nil {
		s.Fatal(err)
	}
	return string(out)
}

// list are the commands that list the rules of upstream's modes.
var list = map[string]string{
	"iptables": "iptables-save; ip6tables-save",
	"nftables": "for f in ip ip6; do nft list table $f kube-proxy 2>/dev/null || true; done",
}

// expectRulesOf waits until upstream's rules for a Service are there.
func (s *site) expectRulesOf(mode string, service *corev1.Service) {
	s.Helper()
	marks := map[string]string{"iptables": "KUBE-SEP-", "nftables": "endpoint-"}
	s.eventually("upstream's rules", func(context.Context) error {
		rules := s.onNode(list[mode])
		for _, mark := range append([]string{marks[mode]}, service.Spec.ClusterIPs...) {
			if !strings.Contains(rules, mark) {
				return fmt.Errorf("there is no %s in\n%s", mark, rules)
			}
		}
		return nil
	})
}

// expectNothingOf waits until nothing is left of upstream's rules.
func (s *site) expectNothingOf(mode string) {
	s.Helper()
	s.eventually("upstream's rules are gone", func(context.Context) error {
		rules := s.onNode(list[mode])
		for _, mark := range []string{"KUBE-SEP-", "KUBE-SVC-", "KUBE-EXT-", "kubernetes forwarding rules", "table ip"} {
			for line := range strings.Lines(rules) {
				if strings.Contains(line, mark) && !strings.Contains(line, "--name") {
					return fmt.Errorf("there is still %s", line)
				}
			}
		}
		return nil
	})
}
