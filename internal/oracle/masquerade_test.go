package oracle_test

import (
	"net/netip"
	"testing"

	"sluice/internal/model"
	"sluice/internal/plan"
)

func TestMasquerade(t *testing.T) {
	play(t, []scenario{
		{
			name: "policy Cluster masquerades everybody at external frontends",
			want: []string{
				"pod-2 > external:80 = forward pod-1* far-1*", "pod-2 > lb:80 = forward pod-1* far-1*",
				"pod-2 > node:30080 = forward pod-1* far-1*", "node > lb:80 = forward pod-1* far-1*",
				"outside > external:80 = forward pod-1* far-1*", "outside > node:30080 = forward pod-1* far-1*",
			},
		}, {
			name:  "policy Cluster does so without a detector too",
			given: func(s *setting) { s.Config.DetectLocal = plan.DetectNone },
			want:  []string{"pod-2 > external:80 = forward pod-1* far-1*", "outside > lb:80 = forward pod-1* far-1*"},
		}, {
			name:  "policy Local masquerades the node only",
			given: func(s *setting) { s.web.ExternalPolicy = model.PolicyLocal },
			want: []string{
				"outside > lb:80 = forward pod-1", "pod-2 > lb:80 = forward pod-1 far-1",
				"far-2 > lb:80 = forward pod-1 far-1", "node > lb:80 = forward pod-1* far-1*",
			},
		}, {
			name: "a ClusterIP masquerades all but pods",
			want: []string{
				"pod-2 > cluster:80 = forward pod-1 far-1", "node > cluster:80 = forward pod-1* far-1*",
				"outside > cluster:80 = forward pod-1* far-1*",
			},
		}, {
			name: "masqueradeAll masquerades all connections to ClusterIPs, and no others",
			given: func(s *setting) {
				s.Config.MasqueradeAll = true
				s.web.ExternalPolicy = model.PolicyLocal
			},
			want: []string{
				"pod-2 > cluster:80 = forward pod-1* far-1*", "outside > lb:80 = forward pod-1",
				"pod-2 > external:80 = forward pod-1 far-1", "node > external:80 = forward pod-1* far-1*",
			},
		}, {
			name: "hairpin: only the way back to oneself is masqueraded",
			want: []string{
				"pod-1 > cluster:80 = forward pod-1* far-1",
				"far-1 > cluster:80 = forward pod-1 far-1*",
			},
		}, {
			name:  "hairpin by a load balancer under policy Local",
			given: func(s *setting) { s.web.ExternalPolicy = model.PolicyLocal },
			want:  []string{"pod-1 > lb:80 = forward pod-1* far-1"},
		}, {
			name:  "hairpin without a detector",
			given: func(s *setting) { s.Config.DetectLocal = plan.DetectNone },
			want:  []string{"pod-1 > cluster:80 = forward pod-1* far-1"},
		},
	})
}

func TestAffinity(t *testing.T) {
	play(t, []scenario{{
		name:  "every frontend of the Service has its affinity",
		given: func(s *setting) { s.web.Affinity = 600 },
		want: []string{
			"pod-2 > cluster:80 = forward pod-1 far-1 affinity 600",
			"outside > external:80 = forward pod-1* far-1* affinity 600",
			"outside > lb:80 = forward pod-1* far-1* affinity 600",
			"outside > node:30080 = forward pod-1* far-1* affinity 600",
		},
	}, {
		name:  "nobody stays with an endpoint that is not there",
		given: func(s *setting) { s.web.Affinity = 600; s.slice.Endpoints = nil },
		want:  []string{"pod-2 > cluster:80 = reject"},
	}})
}

func TestSourceRanges(t *testing.T) {
	// allow filters web by ranges of the family, or of none.
	allow := func(names ...string) func(*setting) {
		return func(s *setting) {
			s.web.Filtered = true
			for _, name := range names {
				s.web.SourceRanges = append(s.web.SourceRanges, rangeIn(s.family, name))
			}
		}
	}
	const lets, drops = " = forward pod-1* far-1*", " = drop"
	play(t, []scenario{
		{
			name:  "who is in a range may connect, others are dropped, pods included",
			given: allow("outside"),
			want: []string{
				"outside > lb:80" + lets, "elsewhere > lb:80" + drops,
				"pod-2 > lb:80" + drops, "node > lb:80" + drops,
			},
		}, {
			name:  "any of several ranges lets in",
			given: allow("nodes", "outside", "node pods"),
			want:  []string{"outside > lb:80" + lets, "pod-2 > lb:80" + lets, "node > lb:80" + lets, "far-1 > lb:80" + drops},
		}, {
			name:  "only load balancer IPs are filtered",
			given: allow(),
			want: []string{
				"outside > external:80" + lets, "outside > node:30080" + lets,
				"outside > cluster:80" + lets, "outside > lb:80" + drops,
			},
		}, {
			name:  "a list without a valid range admits nobody",
			given: allow(),
			want:  []string{"outside > lb:80" + drops, "node > lb:80" + drops, "pod-2 > lb:80" + drops, "lb > lb:80" + drops},
		}, {
			name: "ranges of the other family only filter nobody of this one",
			given: func(s *setting) {
				s.web.Filtered = true
				s.web.SourceRanges = []netip.Prefix{rangeIn(otherFamily(s.family), "all")}
			},
			want: []string{"outside > lb:80" + lets, "node > lb:80" + lets, "lb > lb:80" + lets},
		}, {
			name:  "the load balancer's IP itself is let in where the node is",
			given: allow("nodes"),
			want:  []string{"lb > lb:80" + lets, "node > lb:80" + lets, "external > lb:80" + drops},
		}, {
			name:  "and is not where the node is not",
			given: allow("outside"),
			want:  []string{"lb > lb:80" + drops},
		}, {
			name:  "who is kept out does not learn that there are no endpoints",
			given: func(s *setting) { allow("outside")(s); s.slice.Endpoints = nil },
			want:  []string{"elsewhere > lb:80" + drops, "outside > lb:80 = reject", "elsewhere > node:30080 = reject"},
		}, {
			name:  "who is let in still goes by the policy",
			given: func(s *setting) { allow("outside")(s); s.web.ExternalPolicy = model.PolicyLocal },
			want:  []string{"outside > lb:80 = forward pod-1", "pod-2 > lb:80" + drops, "pod-2 > node:30080 = forward pod-1 far-1"},
		},
	})
}
