//go:build linux

package flags

import (
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// nativeHistograms reports whether there are native histograms, which only protobuf
// has.
func nativeHistograms(p *proxy) string {
	response, body := p.get(metricsAddress(p), "/metrics", "Accept",
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	if response == nil {
		return none
	}
	decoder := expfmt.NewDecoder(strings.NewReader(body), expfmt.ResponseFormat(response.Header))
	for {
		var family dto.MetricFamily
		if err := decoder.Decode(&family); err != nil {
			return no
		}
		for _, m := range family.GetMetric() {
			if family.GetName() == "kubeproxy_sync_proxy_rules_duration_seconds" && m.GetHistogram().Schema != nil {
				return yes
			}
		}
	}
}
