package oracle_test

import (
	"net/netip"
	"testing"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// A ClusterIP shows who counts as a pod: everybody else is masqueraded.
func TestWhoIsAPod(t *testing.T) {
	detect := func(change func(*plan.Config)) func(*setting) {
		return func(s *setting) {
			s.Config.DetectLocal = plan.DetectNone
			s.Config.ClusterCIDRs = nil
			change(&s.Config)
		}
	}
	play(t, []scenario{
		{
			name: "cluster CIDR: every pod of the cluster",
			want: []string{
				"pod-2 > cluster:80 = forward pod-1 far-1",
				"far-2 > cluster:80 = forward pod-1 far-1",
				"node > cluster:80 = forward pod-1* far-1*",
				"outside > cluster:80 = forward pod-1* far-1*",
			},
		}, {
			name: "node CIDR: only this node's pods",
			given: func(s *setting) {
				s.Config.DetectLocal = plan.DetectNodeCIDR
				s.Config.ClusterCIDRs = nil
			},
			want: []string{
				"pod-2 > cluster:80 = forward pod-1 far-1",
				"far-2 > cluster:80 = forward pod-1* far-1*",
				"node > cluster:80 = forward pod-1* far-1*",
			},
		}, {
			name: "bridge: what came through it",
			given: detect(func(c *plan.Config) {
				c.DetectLocal, c.BridgeInterface = plan.DetectBridgeInterface, "veth-pod-2"
			}),
			want: []string{
				"pod-2 > cluster:80 = forward pod-1 far-1",
				"pod-1 > cluster:80 = forward pod-1* far-1*",
				"far-2 > cluster:80 = forward pod-1* far-1*",
				"node > cluster:80 = forward pod-1* far-1*",
			},
		}, {
			name: "interface name prefix: what came through such an interface",
			given: detect(func(c *plan.Config) {
				c.DetectLocal, c.InterfaceNamePrefix = plan.DetectInterfaceNamePrefix, "veth-"
			}),
			want: []string{
				"pod-2 > cluster:80 = forward pod-1 far-1",
				"far-2 > cluster:80 = forward pod-1* far-1*",
				"node > cluster:80 = forward pod-1* far-1*",
			},
		}, {
			name:  "no detector: nobody is a pod and nobody is off-cluster",
			given: detect(func(*plan.Config) {}),
			want: []string{
				"pod-2 > cluster:80 = forward pod-1 far-1",
				"node > cluster:80 = forward pod-1 far-1",
				"outside > cluster:80 = forward pod-1 far-1",
			},
		}, {
			name:  "a detector that is not configured is none",
			given: detect(func(c *plan.Config) { c.DetectLocal = plan.DetectInterfaceNamePrefix }),
			want:  []string{"outside > cluster:80 = forward pod-1 far-1"},
		}, {
			name:  "bridge detection without a bridge is none",
			given: detect(func(c *plan.Config) { c.DetectLocal = plan.DetectBridgeInterface }),
			want:  []string{"outside > cluster:80 = forward pod-1 far-1", "node > cluster:80 = forward pod-1 far-1"},
		}, {
			name: "node CIDR before the node is known is no detector",
			given: func(s *setting) {
				s.Config.DetectLocal = plan.DetectNodeCIDR
				s.Node = nil
			},
			want: []string{"outside > cluster:80 = forward pod-1 far-1"},
		}, {
			name: "a CIDR of the other family is no detector for this one",
			given: func(s *setting) {
				s.Config.ClusterCIDRs = []netip.Prefix{rangeIn(otherFamily(s.family), "cluster pods")}
			},
			want: []string{"outside > cluster:80 = forward pod-1 far-1"},
		},
	})
}

// An external frontend under policy Local shows all three clients apart.
func TestWhoIsTheNode(t *testing.T) {
	local := func(change func(*setting)) func(*setting) {
		return func(s *setting) {
			s.web.ExternalPolicy = model.PolicyLocal
			change(s)
		}
	}
	play(t, []scenario{
		{
			name:  "any address of the node is the node's",
			given: local(func(*setting) {}),
			want: []string{
				"node > external:80 = forward pod-1* far-1*",
				"node-2nd > external:80 = forward pod-1* far-1*",
				"loopback > external:80 = forward pod-1* far-1*",
				"outside > external:80 = forward pod-1",
			},
		}, {
			name:  "an address in the Node object is the node's even if no interface has it",
			given: local(func(s *setting) { s.Node.IPs = append(s.Node.IPs, s.addr("elsewhere")) }),
			want:  []string{"elsewhere > external:80 = forward pod-1* far-1*"},
		}, {
			name:  "loopback is the node's without being listed",
			given: local(func(s *setting) { s.HostIPs = bothFamilies(addrIn, "node") }),
			want:  []string{"loopback > external:80 = forward pod-1* far-1*"},
		}, {
			name:  "a detector that is not configured finds no pods",
			given: local(func(s *setting) { s.Config.DetectLocal = plan.DetectInterfaceNamePrefix }),
			want: []string{
				"pod-2 > external:80 = forward pod-1", "outside > external:80 = forward pod-1",
				"node > external:80 = forward pod-1* far-1*",
			},
		}, {
			name:  "bridge detection without a bridge does not take the node for a pod",
			given: local(func(s *setting) { s.Config.DetectLocal = plan.DetectBridgeInterface }),
			want:  []string{"node > external:80 = forward pod-1* far-1*", "outside > external:80 = forward pod-1"},
		}, {
			name:  "an address of the node in a pod range counts as a pod's",
			given: local(func(*setting) {}),
			want: []string{
				"bridge > external:80 = forward pod-1 far-1",
				"bridge > cluster:80 = forward pod-1 far-1",
			},
		}, {
			name:  "without a detector a pod is like anybody outside",
			given: local(func(s *setting) { s.Config.DetectLocal = plan.DetectNone }),
			want: []string{
				"pod-2 > external:80 = forward pod-1",
				"bridge > external:80 = forward pod-1* far-1*",
			},
		},
	})
}
